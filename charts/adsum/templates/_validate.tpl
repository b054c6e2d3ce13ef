{{/*
What belongs together. The schema knows types and names; here is what one value means for another.
Each refusal says what to do.
*/}}

{{- define "adsum.validate" -}}
{{- $v := .Values -}}
{{- if eq $v.store "memory" -}}
{{- if or (gt (int $v.gateway.replicas) 1) $v.gateway.autoscaling.enabled -}}
{{- fail (printf "store: memory keeps everything in one process, so gateway.replicas must be 1 and gateway.autoscaling off (replicas: %d): two pods would be two worlds that do not know of each other. Set store: redis for more than one" (int $v.gateway.replicas)) -}}
{{- end -}}
{{- if or $v.redis.urls $v.redis.existingSecret.name $v.etcd.endpoints $v.quickstart.redis.enabled $v.quickstart.etcd.enabled -}}
{{- fail "Redis or etcd is named, but store is memory, which uses neither: set store: redis" -}}
{{- end -}}
{{- else -}}
{{- if not (or $v.redis.urls $v.quickstart.redis.enabled (and $v.redis.existingSecret.name $v.redis.existingSecret.urlsKey)) -}}
{{- fail "store: redis needs a Redis Cluster: set redis.urls (such as [redis://redis-0.redis:6379]), or redis.existingSecret with urlsKey, or quickstart.redis.enabled to try it with one of the chart's own" -}}
{{- end -}}
{{- if not (or $v.etcd.endpoints $v.quickstart.etcd.enabled) -}}
{{- fail "store: redis needs etcd for membership: set etcd.endpoints (such as [http://etcd-0.etcd:2379]), or quickstart.etcd.enabled to try it with one of the chart's own" -}}
{{- end -}}
{{- if and $v.quickstart.redis.enabled (or $v.redis.urls $v.redis.existingSecret.name) -}}
{{- fail "quickstart.redis.enabled brings a Redis of its own: leave redis.urls and redis.existingSecret empty, or switch it off" -}}
{{- end -}}
{{- if and $v.quickstart.etcd.enabled (or $v.etcd.endpoints $v.etcd.existingSecret.name) -}}
{{- fail "quickstart.etcd.enabled brings an etcd of its own: leave etcd.endpoints and etcd.existingSecret empty, or switch it off" -}}
{{- end -}}
{{- if and $v.redis.existingSecret.urlsKey (or $v.redis.urls $v.redis.existingSecret.passwordKey) -}}
{{- fail "redis.existingSecret.urlsKey names whole URLs: leave redis.urls and redis.existingSecret.passwordKey empty" -}}
{{- end -}}
{{- if and $v.redis.existingSecret.name (not $v.redis.existingSecret.urlsKey) (not $v.redis.existingSecret.passwordKey) -}}
{{- fail "redis.existingSecret needs passwordKey (its key with the password) or urlsKey (its key with all URLs)" -}}
{{- end -}}
{{- if and $v.redis.username (not $v.redis.existingSecret.passwordKey) -}}
{{- fail "redis.username needs redis.existingSecret.passwordKey" -}}
{{- end -}}
{{- range concat $v.redis.urls $v.etcd.endpoints -}}
{{- if contains "@" . -}}
{{- fail "redis.urls and etcd.endpoints are kept in a ConfigMap and must not carry passwords: name a Secret in redis.existingSecret or etcd.existingSecret" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range tuple $v.redis.ca $v.auth.jwks -}}
{{- if and .existingSecret .existingConfigMap -}}
{{- fail "existingSecret and existingConfigMap of redis.ca and of auth.jwks exclude each other" -}}
{{- end -}}
{{- end -}}
{{- if not (or $v.auth.generate $v.auth.keys $v.auth.jwks.existingSecret $v.auth.jwks.existingConfigMap) -}}
{{- fail "nobody could come in: gateways need keys to verify tokens with. Set auth.keys or auth.jwks, or auth.generate: true to try it" -}}
{{- end -}}
{{- if and (eq $v.feed.tls.mode "existingSecret") (not $v.feed.tls.existingSecret) -}}
{{- fail "feed.tls.mode: existingSecret needs feed.tls.existingSecret" -}}
{{- end -}}
{{- if and (eq $v.feed.tls.mode "certManager") (not $v.feed.tls.certManager.issuerRef.name) -}}
{{- fail "feed.tls.mode: certManager needs feed.tls.certManager.issuerRef (name, and kind if it is a ClusterIssuer)" -}}
{{- end -}}
{{- if and $v.etcd.tls.existingSecret (ne (empty $v.etcd.tls.certKey) (empty $v.etcd.tls.keyKey)) -}}
{{- fail "etcd.tls.certKey and etcd.tls.keyKey belong together" -}}
{{- end -}}
{{- range $name, $role := dict "gateway" $v.gateway "dispatcher" $v.dispatcher -}}
{{- $least := include "adsum.leastGrace" (dict "root" $ "values" $role) | int64 -}}
{{- $grace := include "adsum.grace" (dict "root" $ "values" $role) | int64 -}}
{{- if lt $grace $least -}}
{{- fail (printf "%s.terminationGracePeriodSeconds (%d) is less than a pod needs to go: preStopDelaySeconds + config.times.stop_ms + 5 s = %d. Leave it null" $name $grace $least) -}}
{{- end -}}
{{- with $role.autoscaling -}}
{{- if .enabled -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail (printf "%s.autoscaling.minReplicas (%d) is above maxReplicas (%d)" $name (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- if not (or .targetCPU .targetSessions .metrics) -}}
{{- fail (printf "%s.autoscaling has nothing to go by: set targetCPU, targetSessions or metrics" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq (toString $role.rollingUpdate.maxSurge) "0") (eq (toString $role.rollingUpdate.maxUnavailable) "0") -}}
{{- fail (printf "%s.rollingUpdate: maxSurge and maxUnavailable can't both be 0, nothing could move" $name) -}}
{{- end -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.host) -}}
{{- fail "ingress.enabled needs ingress.host" -}}
{{- end -}}
{{- if and $v.ingress.grpc.enabled (not $v.ingress.grpc.host) -}}
{{- fail "ingress.grpc.enabled needs ingress.grpc.host" -}}
{{- end -}}
{{- range $name, $route := $v.gatewayApi -}}
{{- if and $route.enabled (not $route.parentRefs) -}}
{{- fail (printf "gatewayApi.%s.enabled needs parentRefs: the Gateway to attach to" $name) -}}
{{- end -}}
{{- end -}}
{{- if ne (len (uniq (list (int $v.ports.public) (int $v.ports.feed) (int $v.ports.internal)))) 3 -}}
{{- fail "ports.public, ports.feed and ports.internal must differ" -}}
{{- end -}}
{{- if and $v.quickstart.redis.enabled (ne (mod (int $v.quickstart.redis.replicas) 2) 0) -}}
{{- fail "quickstart.redis.replicas must be even: every master has one replica" -}}
{{- end -}}
{{- end -}}
