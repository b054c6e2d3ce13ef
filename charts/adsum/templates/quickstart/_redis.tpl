{{/* What every container has that runs redis-cluster.sh. Of (root, command). */}}
{{- define "adsum.quickstart.redisScript" -}}
{{- $root := .root -}}
{{- $name := printf "%s-redis" (include "adsum.fullname" $root) -}}
image: {{ $root.Values.quickstart.redis.image | quote }}
imagePullPolicy: IfNotPresent
securityContext:
  {{- toYaml $root.Values.securityContext | nindent 2 }}
command: [sh, /scripts/redis-cluster.sh, {{ .command }}]
env:
  - name: NODES
    value: {{ include "adsum.quickstart.redisNodes" $root | quote }}
  - name: REDISCLI_AUTH
    valueFrom: {secretKeyRef: {name: {{ $name }}, key: password}}
resources:
  requests: {cpu: 10m, memory: 16Mi}
  limits: {memory: 64Mi}
volumeMounts:
  - {name: redis-scripts, mountPath: /scripts, readOnly: true}
{{- end -}}

{{- define "adsum.quickstart.redisNodes" -}}
{{- $name := printf "%s-redis" (include "adsum.fullname" .) -}}
{{- $hosts := list -}}
{{- range $n := until (int .Values.quickstart.redis.replicas) -}}
{{- $hosts = append $hosts (printf "%s-%d.%s.%s.svc" $name $n $name $.Release.Namespace) -}}
{{- end -}}
{{- join " " $hosts -}}
{{- end -}}

{{/* Pods of the quickstart run as the images' own user. Of (uid). */}}
{{- define "adsum.quickstart.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .uid }}
runAsGroup: {{ .uid }}
fsGroup: {{ .uid }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* A disk. Of (size, storageClass). */}}
{{- define "adsum.quickstart.claims" -}}
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata: {name: data}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .storageClass }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ .size }}}}
{{- end -}}
