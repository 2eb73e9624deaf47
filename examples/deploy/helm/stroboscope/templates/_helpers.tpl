{{- define "stroboscope.selector" -}}
app.kubernetes.io/name: stroboscope
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Security context of containers that need no rights. */}}
{{- define "stroboscope.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* Security context of pods that need no rights. */}}
{{- define "stroboscope.unprivileged" -}}
runAsNonRoot: true
runAsUser: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- /* Address of the gateway's gRPC port. */}}
{{- define "stroboscope.gateway" -}}
{{ ternary "https" "http" (ne .Values.tlsSecret "") }}://{{ .Release.Name }}:4317
{{- end }}

{{- /* Volume with the gateway's authority. */}}
{{- define "stroboscope.authority" -}}
- name: authority
  secret:
    secretName: {{ .Values.tlsSecret }}
    items:
      - key: ca.crt
        path: ca.crt
{{- end }}
