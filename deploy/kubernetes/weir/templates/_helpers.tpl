{{/* Names are at most 63 bytes with their suffixes. */}}
{{- define "weir.name" -}}
{{- ternary .Release.Name (printf "%s-weir" .Release.Name) (contains "weir" .Release.Name) | trunc 47 | trimSuffix "-" }}
{{- end }}

{{/* Labels of selectors, which never change. The component is also the name of the Prometheus job. */}}
{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* The image of a component. Its registry is required, because without a registry Kubernetes would pull from Docker Hub, which has no image of Weir. */}}
{{- define "weir.image" -}}
{{- if not (or .root.Values.image.registry (eq .root.Values.image.pullPolicy "Never")) }}
{{- fail "image.registry is empty, and no image of Weir is published: build the images (deploy/docker/Dockerfile), push them, and set image.registry to where they are, with a trailing slash; or load them onto the machines and set image.pullPolicy=Never" }}
{{- end }}
{{- printf "%s%s:%s" .root.Values.image.registry .component (default .root.Chart.AppVersion .root.Values.image.tag) | quote }}
{{- end }}

{{- define "weir.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "weir.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Nine tenths of a quantity of memory, in bytes, or "" for none. The rest is for memory that Go's runtime does not count. */}}
{{- define "weir.memoryLimit" -}}
{{- with . }}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- $quantity := ternary (. | int64 | toString) (toString .) (kindIs "float64" .) }}
{{- $unit := regexFind "[A-Za-z]*$" $quantity }}
{{- if not (hasKey $units $unit) }}
{{- fail (printf "resources.limits.memory is %s: its unit is none of k, M, G, T, Ki, Mi, Gi and Ti" $quantity) }}
{{- end }}
{{- mulf (trimSuffix $unit $quantity | float64) (get $units $unit) 0.9 | int64 }}
{{- end }}
{{- end }}

{{- define "weir.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
