{{/* The configuration file of the binary. */}}

{{/*
A table as TOML. Of (path, table). Numbers and texts in JSON are the same in TOML, and unlike
`toToml` JSON leaves whole numbers whole.
*/}}
{{- define "adsum.toml" -}}
{{- $path := .path -}}
{{- range $key, $value := .table }}
{{- if and (kindIs "slice" $value) $value (kindIs "map" (first $value)) }}
{{- else if and (not (kindIs "map" $value)) (not (kindIs "invalid" $value)) }}
{{ $key }} = {{ $value | toJson }}
{{- end }}
{{- end }}
{{- range $key, $value := .table }}
{{- $name := ternary $key ($key | toJson) (regexMatch "^[A-Za-z0-9_-]+$" $key) }}
{{- $at := ternary $name (printf "%s.%s" $path $name) (eq $path "") }}
{{- if and (kindIs "slice" $value) $value (kindIs "map" (first $value)) }}
{{- range $value }}

[[{{ $at }}]]
{{- include "adsum.toml" (dict "path" $at "table" .) }}
{{- end }}
{{- else if and (kindIs "map" $value) $value }}

[{{ $at }}]
{{- include "adsum.toml" (dict "path" $at "table" $value) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* All settings, as JSON. One file for all roles: nodes of a cluster must agree on most of it. */}}
{{- define "adsum.settings" -}}
{{- $config := deepCopy .Values.config -}}
{{- $host := ternary "[::]" "0.0.0.0" .Values.network.ipv6 -}}
{{- $listen := dict -}}
{{- $_ := set $listen "public" (printf "%s:%d" $host (int .Values.ports.public)) -}}
{{- $_ := set $listen "internal" (printf "%s:%d" $host (int .Values.ports.internal)) -}}
{{- $_ := set $config "cluster" (dict "name" .Values.cluster.name "shards" .Values.cluster.shards) -}}
{{- if include "adsum.clustered" . -}}
{{- $_ := set $listen "feed" (printf "%s:%d" $host (int .Values.ports.feed)) -}}
{{- $redis := dict -}}
{{- $urls := include "adsum.redisUrls" . | fromJsonArray -}}
{{- if and $urls (not (include "adsum.redisPassword" .)) -}}
{{- $_ := set $redis "urls" $urls -}}
{{- end -}}
{{- if or .Values.redis.ca.existingSecret .Values.redis.ca.existingConfigMap -}}
{{- $_ := set $redis "ca" "/etc/adsum/redis/ca.crt" -}}
{{- end -}}
{{- $_ := set $config "redis" $redis -}}
{{- $etcd := dict "endpoints" (include "adsum.etcdEndpoints" . | fromJsonArray) -}}
{{- if .Values.etcd.tls.existingSecret -}}
{{- $_ := set $etcd "ca" "/etc/adsum/etcd/ca.crt" -}}
{{- if .Values.etcd.tls.certKey -}}
{{- $_ := set $etcd "cert" "/etc/adsum/etcd/tls.crt" -}}
{{- $_ := set $etcd "key" "/etc/adsum/etcd/tls.key" -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "etcd" $etcd -}}
{{- if include "adsum.feedTls" . -}}
{{- $feed := dict "ca" "/etc/adsum/feed/ca.crt" "cert" "/etc/adsum/feed/tls.crt" "key" "/etc/adsum/feed/tls.key" -}}
{{- $_ := set $feed "domain" (include "adsum.feedDomain" .) -}}
{{- $_ := set $config "feed" $feed -}}
{{- else -}}
{{- $_ := set $config "feed" (dict "plaintext" true) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "listen" $listen -}}
{{- if .Values.tls.existingSecret -}}
{{- $_ := set $config "tls" (dict "cert" "/etc/adsum/tls/tls.crt" "key" "/etc/adsum/tls/tls.key") -}}
{{- end -}}
{{- $auth := dict -}}
{{- $keys := list -}}
{{- if .Values.auth.generate -}}
{{- $keys = append $keys (dict "alg" "HS256" "file" "/etc/adsum/auth/generated/key") -}}
{{- end -}}
{{- range $n, $key := .Values.auth.keys -}}
{{- $table := dict "alg" $key.alg "file" (printf "/etc/adsum/auth/%d/key" $n) -}}
{{- if $key.kid -}}{{- $_ := set $table "kid" $key.kid -}}{{- end -}}
{{- if $key.tenant -}}{{- $_ := set $table "tenant" $key.tenant -}}{{- end -}}
{{- $keys = append $keys $table -}}
{{- end -}}
{{- if $keys -}}{{- $_ := set $auth "keys" $keys -}}{{- end -}}
{{- if or .Values.auth.jwks.existingSecret .Values.auth.jwks.existingConfigMap -}}
{{- $_ := set $auth "jwks" "/etc/adsum/auth/jwks/jwks.json" -}}
{{- end -}}
{{- if .Values.auth.audience -}}{{- $_ := set $auth "audience" .Values.auth.audience -}}{{- end -}}
{{- if .Values.auth.issuer -}}{{- $_ := set $auth "issuer" .Values.auth.issuer -}}{{- end -}}
{{- $_ := set $config "auth" $auth -}}
{{- $config | toJson -}}
{{- end -}}

{{- define "adsum.configFile" -}}
# Made by the chart. `adsum check-config -c` says whether it can be used.
{{- include "adsum.toml" (dict "path" "" "table" (include "adsum.settings" . | fromJson)) }}
{{- end -}}
