{{/* Names, labels and small decisions that several templates share. */}}

{{- define "adsum.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for what is put behind it: -redis-bootstrap-, a hash, a pod's suffix. */}}
{{- define "adsum.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "adsum.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What pods are selected by; never changes. Of (root, component). */}}
{{- define "adsum.selector" -}}
app.kubernetes.io/name: {{ include "adsum.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object. Of (root, component). */}}
{{- define "adsum.labels" -}}
{{ include "adsum.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: adsum
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The metadata of an object. Of (root, component, name), and labels and annotations of its own. */}}
{{- define "adsum.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "adsum.labels" . | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* "true" when there is more than one process. */}}
{{- define "adsum.clustered" -}}
{{- if eq .Values.store "redis" -}}true{{- end -}}
{{- end -}}

{{- define "adsum.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "adsum.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "adsum.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* The name in the certificates of the feed. */}}
{{- define "adsum.feedDomain" -}}
{{ include "adsum.fullname" . }}-feed.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "adsum.feedSecret" -}}
{{- if eq .Values.feed.tls.mode "existingSecret" -}}
{{ .Values.feed.tls.existingSecret }}
{{- else -}}
{{ include "adsum.fullname" . }}-feed-tls
{{- end -}}
{{- end -}}

{{/* "true" when nodes show each other certificates. */}}
{{- define "adsum.feedTls" -}}
{{- if and (include "adsum.clustered" .) (ne .Values.feed.tls.mode "none") -}}true{{- end -}}
{{- end -}}

{{/* A time of the configuration in ms. Of (root, key, default); the default is the binary's. */}}
{{- define "adsum.time" -}}
{{- $times := .root.Values.config.times | default dict -}}
{{- if hasKey $times .key -}}{{ get $times .key | int64 }}{{- else -}}{{ .default }}{{- end -}}
{{- end -}}

{{/* The least time in s that a pod needs to go. Of (root, values). */}}
{{- define "adsum.leastGrace" -}}
{{- $stop := include "adsum.time" (dict "root" .root "key" "stop_ms" "default" 30000) | int64 -}}
{{- add (.values.preStopDelaySeconds | int64) (div (add $stop 999) 1000) 5 -}}
{{- end -}}

{{- define "adsum.grace" -}}
{{- if kindIs "invalid" .values.terminationGracePeriodSeconds -}}
{{ include "adsum.leastGrace" . }}
{{- else -}}
{{ .values.terminationGracePeriodSeconds | int64 }}
{{- end -}}
{{- end -}}

{{/* Seed URLs of Redis without credentials, as a JSON list. */}}
{{- define "adsum.redisUrls" -}}
{{- if .Values.quickstart.redis.enabled -}}
{{- $name := printf "%s-redis" (include "adsum.fullname" .) -}}
{{- $urls := list -}}
{{- range $n := until (int .Values.quickstart.redis.replicas) -}}
{{- $urls = append $urls (printf "redis://%s-%d.%s.%s.svc:6379" $name $n $name $.Release.Namespace) -}}
{{- end -}}
{{- $urls | toJson -}}
{{- else -}}
{{- .Values.redis.urls | toJson -}}
{{- end -}}
{{- end -}}

{{/* The Secret and the key of the password of Redis, if there is one: "name/key". */}}
{{- define "adsum.redisPassword" -}}
{{- if .Values.quickstart.redis.enabled -}}
{{ include "adsum.fullname" . }}-redis/password
{{- else if and .Values.redis.existingSecret.name .Values.redis.existingSecret.passwordKey -}}
{{ .Values.redis.existingSecret.name }}/{{ .Values.redis.existingSecret.passwordKey }}
{{- end -}}
{{- end -}}

{{/* The same URLs with the password, which the kubelet fills in. */}}
{{- define "adsum.redisUrlsWithPassword" -}}
{{- $urls := list -}}
{{- range include "adsum.redisUrls" . | fromJsonArray -}}
{{- $parts := splitn "://" 2 . -}}
{{- $urls = append $urls (printf "%s://%s:$(REDIS_PASSWORD)@%s" $parts._0 $.Values.redis.username $parts._1) -}}
{{- end -}}
{{- $urls | toJson -}}
{{- end -}}

{{- define "adsum.etcdEndpoints" -}}
{{- if .Values.quickstart.etcd.enabled -}}
{{- $name := printf "%s-etcd" (include "adsum.fullname" .) -}}
{{- $urls := list -}}
{{- range $n := until (int .Values.quickstart.etcd.replicas) -}}
{{- $urls = append $urls (printf "http://%s-%d.%s.%s.svc:2379" $name $n $name $.Release.Namespace) -}}
{{- end -}}
{{- $urls | toJson -}}
{{- else -}}
{{- .Values.etcd.endpoints | toJson -}}
{{- end -}}
{{- end -}}

{{/* The port of the collector, as the binary takes it from the URL; nothing without a collector. */}}
{{- define "adsum.collectorPort" -}}
{{- with (.Values.config.telemetry | default dict).endpoint -}}
{{- $url := urlParse . -}}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $port | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end -}}
{{- end -}}

{{/* "true" when there is a `helm test`: it has a token, or a key to make one with. */}}
{{- define "adsum.tested" -}}
{{- if and .Values.tests.enabled (or .Values.tests.tokenSecret.name (include "adsum.testKey" .)) -}}true{{- end -}}
{{- end -}}

{{/* Where the key of `helm test` is mounted: the first HS256 key, as JSON, or nothing. */}}
{{- define "adsum.testKey" -}}
{{- if .Values.auth.generate -}}
{{- dict "secret" (printf "%s-auth" (include "adsum.fullname" .)) "key" "hs256" "kid" "" "tenant" "" | toJson -}}
{{- else -}}
{{- $found := dict -}}
{{- range .Values.auth.keys -}}
{{- if and (eq .alg "HS256") (not $found.secret) -}}
{{- $_ := set $found "secret" .secretName -}}
{{- $_ := set $found "key" .secretKey -}}
{{- $_ := set $found "kid" (.kid | default "") -}}
{{- $_ := set $found "tenant" (.tenant | default "") -}}
{{- end -}}
{{- end -}}
{{- if $found.secret -}}{{- $found | toJson -}}{{- end -}}
{{- end -}}
{{- end -}}
