{{/* A Deployment of nodes: root, component, name, replicas (none if they are scaled), and the keys of node.existingSecret that they get. */}}
{{- define "weir.nodes" -}}
{{- $node := .root.Values.node }}
{{- $peers := $node.relayPeers }}
{{- $peered := and $peers.regions (has "mysql-dsn" .keys) }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  labels:
    {{- include "weir.labels" . | nindent 4 }}
spec:
  {{- if not .scaled }}
  replicas: {{ .replicas }}
  {{- end }}
  strategy:
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  selector:
    matchLabels:
      {{- include "weir.nodeSelector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "weir.labels" . | nindent 8 }}
        weir/mysql: {{ has "mysql-dsn" .keys | quote }}
      {{- with $node.annotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "weir.name" .root }}
      automountServiceAccountToken: false
      # Nodes send accepted cost before they end, so a rolling update loses nothing.
      terminationGracePeriodSeconds: {{ add $node.drainDelaySeconds $node.drainTimeoutSeconds 5 }}
      securityContext:
        {{- include "weir.podSecurity" . | nindent 8 }}
      {{- with .root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
      topologySpreadConstraints:
        {{- include "weir.spread" . | nindent 8 }}
      {{- include "weir.placement" $node | nindent 6 }}
      containers:
        - name: weir-node
          image: {{ include "weir.image" . }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          securityContext:
            {{- include "weir.containerSecurity" . | nindent 12 }}
          env:
            - {name: WEIR_LISTEN, value: "0.0.0.0:7001"}
            - {name: WEIR_GRPC_LISTEN, value: "0.0.0.0:7002"}
            - {name: WEIR_ADMIN_LISTEN, value: "0.0.0.0:7101"}
            - {name: WEIR_REGION, value: {{ required "region is empty: set it to the name of this region" .root.Values.region | quote }}}
            {{- range .keys }}
            - {name: {{ printf "WEIR_%s_FILE" (. | upper | replace "-" "_") }}, value: "/run/secrets/weir/{{ . }}"}
            {{- end }}
            {{- if $node.tokensSecret }}
            - {name: WEIR_TOKENS_FILE, value: /run/secrets/weir-tokens/tokens}
            {{- else }}
            - {name: WEIR_INSECURE_PUBLIC, value: "true"}
            {{- end }}
            {{- if $peered }}
            {{- $words := list }}
            {{- range $region, $addresses := $peers.regions }}
            {{- $words = append $words (printf "%s=%s" $region (join "," $addresses)) }}
            {{- end }}
            - {name: WEIR_RELAY_PEERS, value: {{ join " " $words | quote }}}
            - {name: WEIR_RELAY_PEERS_LISTEN, value: "0.0.0.0:7301"}
            - {name: WEIR_RELAY_PEERS_DOMAIN, value: {{ $peers.domain | quote }}}
            - {name: WEIR_RELAY_PEERS_CERT_FILE, value: /run/secrets/weir-relay/tls.crt}
            - {name: WEIR_RELAY_PEERS_KEY_FILE, value: /run/secrets/weir-relay/tls.key}
            - {name: WEIR_RELAY_PEERS_CA_FILE, value: /run/secrets/weir-relay/ca.crt}
            {{- end }}
            - {name: WEIR_ENTRIES_MAX, value: {{ int64 $node.entriesMax | quote }}}
            - {name: WEIR_MAX_IN_FLIGHT, value: {{ int64 $node.maxInFlight | quote }}}
            - {name: WEIR_DRAIN_DELAY, value: "{{ $node.drainDelaySeconds }}s"}
            - {name: WEIR_DRAIN_TIMEOUT, value: "{{ $node.drainTimeoutSeconds }}s"}
            - {name: WEIR_LOG_LEVEL, value: {{ $node.logLevel }}}
            {{- with include "weir.memoryLimit" (dig "limits" "memory" "" $node.resources) }}
            # The garbage collector runs more often as memory approaches this.
            - {name: GOMEMLIMIT, value: {{ . | quote }}}
            {{- end }}
            {{- with $node.tls.secret }}
            - {name: WEIR_TLS_CERT_FILE, value: /run/secrets/weir-tls/tls.crt}
            - {name: WEIR_TLS_KEY_FILE, value: /run/secrets/weir-tls/tls.key}
            {{- if $node.tls.clientCA }}
            - {name: WEIR_TLS_CLIENT_CA_FILE, value: /run/secrets/weir-tls/ca.crt}
            {{- end }}
            {{- end }}
            {{- if include "weir.rules" .root }}
            - {name: WEIR_RLS_RULES, value: /etc/weir/rls}
            {{- with $node.rls.workspace }}
            - {name: WEIR_RLS_WORKSPACE, value: {{ . | quote }}}
            {{- end }}
            {{- end }}
            {{- range $variable, $value := $node.extraEnv }}
            - {name: {{ $variable }}, value: {{ $value | quote }}}
            {{- end }}
          ports:
            - {name: http, containerPort: 7001}
            - {name: grpc, containerPort: 7002}
            - {name: admin, containerPort: 7101}
            {{- if $peered }}
            - {name: relays, containerPort: 7301}
            {{- end }}
          startupProbe:
            httpGet: {path: /healthz, port: admin}
            periodSeconds: 1
            failureThreshold: 30
          livenessProbe:
            httpGet: {path: /healthz, port: admin}
            periodSeconds: 10
            timeoutSeconds: 3
          readinessProbe:
            httpGet: {path: /readyz, port: admin}
            periodSeconds: 2
            failureThreshold: 1
          resources:
            {{- toYaml $node.resources | nindent 12 }}
          volumeMounts:
            {{- if .keys }}
            - {name: secrets, mountPath: /run/secrets/weir, readOnly: true}
            {{- end }}
            {{- if $node.tokensSecret }}
            - {name: tokens, mountPath: /run/secrets/weir-tokens, readOnly: true}
            {{- end }}
            {{- if $peered }}
            - {name: relay, mountPath: /run/secrets/weir-relay, readOnly: true}
            {{- end }}
            {{- if $node.tls.secret }}
            - {name: tls, mountPath: /run/secrets/weir-tls, readOnly: true}
            {{- end }}
            {{- if $node.storesTLSSecret }}
            - {name: stores, mountPath: /run/secrets/weir-stores, readOnly: true}
            {{- end }}
            {{- if include "weir.rules" .root }}
            - {name: rls, mountPath: /etc/weir/rls, readOnly: true}
            {{- end }}
            {{- with $node.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        {{- if .keys }}
        - name: secrets
          secret:
            secretName: {{ $node.existingSecret }}
            defaultMode: 0440
            items:
              {{- range .keys }}
              - {key: {{ . }}, path: {{ . }}}
              {{- end }}
        {{- end }}
        {{- if $node.tokensSecret }}
        - name: tokens
          secret: {secretName: {{ $node.tokensSecret }}, defaultMode: 0440}
        {{- end }}
        {{- if $peered }}
        - name: relay
          secret: {secretName: {{ $peers.tlsSecret }}, defaultMode: 0440}
        {{- end }}
        {{- with $node.tls.secret }}
        - name: tls
          secret: {secretName: {{ . }}, defaultMode: 0440}
        {{- end }}
        {{- with $node.storesTLSSecret }}
        - name: stores
          secret: {secretName: {{ . }}, defaultMode: 0440}
        {{- end }}
        {{- with include "weir.rules" .root }}
        - name: rls
          configMap: {name: {{ . }}}
        {{- end }}
        {{- with $node.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}

{{/* The ConfigMap of the rules of Envoy's rate limit service, "" without rules. */}}
{{- define "weir.rules" -}}
{{- $rls := .Values.node.rls }}
{{- if and $rls.rules $rls.existingConfigMap }}
{{- fail "node.rls.rules and node.rls.existingConfigMap are both set: set one of them" }}
{{- end }}
{{- if $rls.rules }}{{ include "weir.name" . }}-rls{{ else }}{{ $rls.existingConfigMap }}{{ end }}
{{- end }}

{{/* The selector of one Deployment's nodes. Services and the budget select nodes with and without MySQL. */}}
{{- define "weir.nodeSelector" -}}
{{ include "weir.selector" . }}
weir/mysql: {{ has "mysql-dsn" .keys | quote }}
{{- end }}

{{- define "weir.spread" -}}
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "weir.nodeSelector" $ | nindent 6 }}
{{- end }}
{{- end }}
