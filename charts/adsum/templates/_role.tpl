{{/* The objects that both roles have. Of (root, component, values, roles). */}}

{{- define "adsum.deployment" -}}
{{- $root := .root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "adsum.metadata" (merge (dict "name" (printf "%s-%s" (include "adsum.fullname" $root) .component)) .) | nindent 2 }}
spec:
  {{- if not .values.autoscaling.enabled }}
  replicas: {{ .values.replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  minReadySeconds: {{ .values.minReadySeconds }}
  # A rollout goes on for as long as its pods drain.
  progressDeadlineSeconds: {{ add 600 (include "adsum.grace" . | int64) }}
  strategy:
    {{- if include "adsum.clustered" $root }}
    type: RollingUpdate
    rollingUpdate:
      {{- toYaml .values.rollingUpdate | nindent 6 }}
    {{- else }}
    # Two pods would be two worlds.
    type: Recreate
    {{- end }}
  selector:
    matchLabels:
      {{- include "adsum.selector" . | nindent 6 }}
  template:
    {{- include "adsum.podTemplate" . | nindent 4 }}
{{- end -}}

{{- define "adsum.pdb" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "adsum.metadata" (merge (dict "name" (printf "%s-%s" (include "adsum.fullname" .root) .component)) .) | nindent 2 }}
spec:
  maxUnavailable: {{ .values.pdb.maxUnavailable }}
  # A pod that is not ready serves nobody: it must not keep a node from being emptied.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "adsum.selector" . | nindent 6 }}
{{- end -}}

{{- define "adsum.hpa" -}}
{{- $name := printf "%s-%s" (include "adsum.fullname" .root) .component -}}
{{- $auto := .values.autoscaling -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "adsum.metadata" (merge (dict "name" $name) .) | nindent 2 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ $name }}}
  minReplicas: {{ $auto.minReplicas }}
  maxReplicas: {{ $auto.maxReplicas }}
  metrics:
    {{- with $auto.targetCPU }}
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ . }}}
    {{- end }}
    {{- with $auto.targetSessions }}
    - type: Pods
      pods:
        metric: {name: adsum_sessions}
        target: {type: AverageValue, averageValue: {{ . | int64 | quote }}}
    {{- end }}
    {{- with $auto.metrics }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $auto.behavior }}
  behavior:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
