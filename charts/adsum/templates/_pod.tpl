{{/* The pods of a role. Of (root, component, values, roles). */}}

{{- define "adsum.podTemplate" -}}
{{- $root := .root -}}
{{- $isGateway := eq .component "gateway" -}}
metadata:
  labels:
    {{- include "adsum.labels" . | nindent 4 }}
    adsum/metrics: "true"
    {{- with .values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # A new configuration is a new pod: most settings are read at the start only.
    checksum/config: {{ include "adsum.configFile" $root | sha256sum }}
    {{- with merge (dict) .values.podAnnotations $root.Values.commonAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "adsum.serviceAccountName" $root }}
  automountServiceAccountToken: false
  # Variables of Services would begin with ADSUM_ when the release is called so, and the binary
  # refuses settings that it does not know.
  enableServiceLinks: false
  {{- with $root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  terminationGracePeriodSeconds: {{ include "adsum.grace" . }}
  {{- with .values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with include "adsum.affinity" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if $root.Values.quickstart.redis.enabled }}
  initContainers:
    # Without Redis a node ends at once, and the kubelet waits longer every time.
    - name: wait-for-redis
      {{- include "adsum.quickstart.redisScript" (dict "root" $root "command" "wait") | nindent 6 }}
  {{- end }}
  containers:
    - name: adsum
      image: {{ include "adsum.image" $root | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      securityContext:
        {{- toYaml $root.Values.securityContext | nindent 8 }}
      command: [/usr/local/bin/adsum]
      args:
        - serve
        - --config=/etc/adsum/config/adsum.toml
        - --roles={{ .roles }}
        {{- if include "adsum.clustered" $root }}
        - --name=$(POD_NAME)
        {{- end }}
        {{- if eq .component "dispatcher" }}
        # Gateways find it in etcd, by this address.
        - --advertise={{ ternary "[$(POD_IP)]" "$(POD_IP)" $root.Values.network.ipv6 }}:{{ $root.Values.ports.feed }}
        {{- end }}
      env:
        {{- include "adsum.env" . | nindent 8 }}
      ports:
        {{- if $isGateway }}
        - name: public
          containerPort: {{ $root.Values.ports.public }}
        {{- else }}
        - name: feed
          containerPort: {{ $root.Values.ports.feed }}
        {{- end }}
        - name: internal
          containerPort: {{ $root.Values.ports.internal }}
      startupProbe:
        httpGet: {path: /healthz, port: internal}
        {{- toYaml $root.Values.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet: {path: /healthz, port: internal}
        {{- toYaml $root.Values.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: internal}
        {{- toYaml $root.Values.probes.readiness | nindent 8 }}
      {{- if gt (int .values.preStopDelaySeconds) 0 }}
      lifecycle:
        preStop:
          exec:
            # The image has no shell. It returns when the node has stopped.
            command:
              - /usr/local/bin/adsum
              - drain
              - --after-ms={{ mul .values.preStopDelaySeconds 1000 }}
      {{- end }}
      resources:
        {{- toYaml .values.resources | nindent 8 }}
      volumeMounts:
        {{- include "adsum.mounts" . | nindent 8 }}
  volumes:
    {{- include "adsum.volumes" . | nindent 4 }}
{{- end -}}

{{- define "adsum.env" -}}
{{- $root := .root -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
# Where `adsum drain`, `health` and `shards` ask when they are run in this pod.
- name: ADSUM_INTERNAL
  value: http://{{ ternary "[::1]" "127.0.0.1" $root.Values.network.ipv6 }}:{{ $root.Values.ports.internal }}
{{- if include "adsum.clustered" $root }}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
# Set by Kubernetes 1.35 and later, empty before. Quoted: some zones are called 1.
- name: POD_ZONE
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}
- name: ADSUM_NODE__ZONE
  value: '"$(POD_ZONE)"'
{{- with include "adsum.redisPassword" $root }}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ (splitn "/" 2 .)._0 }}
      key: {{ (splitn "/" 2 .)._1 }}
- name: ADSUM_REDIS__URLS
  value: {{ include "adsum.redisUrlsWithPassword" $root | quote }}
{{- end }}
{{- if and $root.Values.redis.existingSecret.name $root.Values.redis.existingSecret.urlsKey }}
- name: ADSUM_REDIS__URLS
  valueFrom:
    secretKeyRef:
      name: {{ $root.Values.redis.existingSecret.name }}
      key: {{ $root.Values.redis.existingSecret.urlsKey }}
{{- end }}
{{- with $root.Values.etcd.existingSecret }}
{{- if .name }}
- name: ETCD_USER
  valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .userKey }}}}
- name: ETCD_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .passwordKey }}}}
# Quoted: a password may look like a number.
- name: ADSUM_ETCD__USER
  value: '"$(ETCD_USER)"'
- name: ADSUM_ETCD__PASSWORD
  value: '"$(ETCD_PASSWORD)"'
{{- end }}
{{- end }}
{{- end }}
{{- with .values.threads }}
- name: ADSUM_NODE__THREADS
  value: {{ . | quote }}
{{- end }}
{{- with .values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "adsum.mounts" -}}
{{- $root := .root -}}
- {name: config, mountPath: /etc/adsum/config, readOnly: true}
{{- if include "adsum.feedTls" $root }}
- {name: feed, mountPath: /etc/adsum/feed, readOnly: true}
{{- end }}
{{- if include "adsum.clustered" $root }}
{{- if or $root.Values.redis.ca.existingSecret $root.Values.redis.ca.existingConfigMap }}
- {name: redis-ca, mountPath: /etc/adsum/redis, readOnly: true}
{{- end }}
{{- if $root.Values.etcd.tls.existingSecret }}
- {name: etcd-tls, mountPath: /etc/adsum/etcd, readOnly: true}
{{- end }}
{{- end }}
{{- if eq .component "gateway" }}
{{- if $root.Values.tls.existingSecret }}
- {name: tls, mountPath: /etc/adsum/tls, readOnly: true}
{{- end }}
{{- if $root.Values.auth.generate }}
- {name: auth-generated, mountPath: /etc/adsum/auth/generated, readOnly: true}
{{- end }}
{{- range $n, $key := $root.Values.auth.keys }}
- {name: auth-{{ $n }}, mountPath: /etc/adsum/auth/{{ $n }}, readOnly: true}
{{- end }}
{{- if or $root.Values.auth.jwks.existingSecret $root.Values.auth.jwks.existingConfigMap }}
- {name: jwks, mountPath: /etc/adsum/auth/jwks, readOnly: true}
{{- end }}
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Whole folders, never single files: only folders follow their Secret when it changes. */}}
{{- define "adsum.volumes" -}}
{{- $root := .root -}}
{{- $name := include "adsum.fullname" $root -}}
- name: config
  configMap: {name: {{ $name }}, defaultMode: 0444}
{{- if include "adsum.feedTls" $root }}
- name: feed
  secret: {secretName: {{ include "adsum.feedSecret" $root }}, defaultMode: 0440}
{{- end }}
{{- if include "adsum.clustered" $root }}
{{- with $root.Values.redis.ca }}
{{- if .existingSecret }}
- name: redis-ca
  secret: {secretName: {{ .existingSecret }}, defaultMode: 0440, items: [{key: {{ .key }}, path: ca.crt}]}
{{- else if .existingConfigMap }}
- name: redis-ca
  configMap: {name: {{ .existingConfigMap }}, defaultMode: 0444, items: [{key: {{ .key }}, path: ca.crt}]}
{{- end }}
{{- end }}
{{- with $root.Values.etcd.tls }}
{{- if .existingSecret }}
- name: etcd-tls
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
    items:
      - {key: {{ .caKey }}, path: ca.crt}
      {{- if .certKey }}
      - {key: {{ .certKey }}, path: tls.crt}
      - {key: {{ .keyKey }}, path: tls.key}
      {{- end }}
{{- end }}
{{- end }}
{{- if $root.Values.quickstart.redis.enabled }}
- name: redis-scripts
  configMap: {name: {{ $name }}-redis, defaultMode: 0444}
{{- end }}
{{- end }}
{{- if eq .component "gateway" }}
{{- with $root.Values.tls.existingSecret }}
- name: tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- if $root.Values.auth.generate }}
- name: auth-generated
  secret: {secretName: {{ $name }}-auth, defaultMode: 0440, items: [{key: hs256, path: key}]}
{{- end }}
{{- range $n, $key := $root.Values.auth.keys }}
- name: auth-{{ $n }}
  secret: {secretName: {{ $key.secretName }}, defaultMode: 0440, items: [{key: {{ $key.secretKey }}, path: key}]}
{{- end }}
{{- with $root.Values.auth.jwks }}
{{- if .existingSecret }}
- name: jwks
  secret: {secretName: {{ .existingSecret }}, defaultMode: 0440, items: [{key: {{ .key }}, path: jwks.json}]}
{{- else if .existingConfigMap }}
- name: jwks
  configMap: {name: {{ .existingConfigMap }}, defaultMode: 0444, items: [{key: {{ .key }}, path: jwks.json}]}
{{- end }}
{{- end }}
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "adsum.affinity" -}}
{{- if .values.affinity }}
affinity:
  {{- toYaml .values.affinity | nindent 2 }}
{{- else if eq .values.antiAffinity "soft" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "adsum.selector" . | nindent 14 }}
{{- else if eq .values.antiAffinity "hard" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "adsum.selector" . | nindent 12 }}
{{- end }}
{{- if ne .values.topologySpread.zones "none" }}
topologySpreadConstraints:
  - topologyKey: topology.kubernetes.io/zone
    maxSkew: 1
    whenUnsatisfiable: {{ .values.topologySpread.zones }}
    # Of one rollout: the pods that are about to go don't count.
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- include "adsum.selector" . | nindent 8 }}
{{- end }}
{{- end -}}
