package check

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// Every example installs objects that Kubernetes has, that find each other, that follow its strictest policy, and whose
// programs accept their options.
func TestChart(t *testing.T) {
	c := openChart(t)
	for _, path := range files(t, "deploy/kubernetes/examples/*.yaml") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			o := c.example(t, path)
			for name, pod := range o.pods {
				mustBeRestricted(t, name, pod.Spec)
				checkPod(t, name, pod.Spec)
			}
			o.mustFindEachOther(t)
			if len(o.budgets) != 1 {
				t.Errorf("%d disruption budgets, want the nodes'", len(o.budgets))
			}
			for _, monitor := range o.monitors {
				if !strings.Contains(monitor, "jobLabel: app.kubernetes.io/component") || !slices.ContainsFunc(jobs, func(job string) bool {
					return strings.Contains(monitor, "app.kubernetes.io/component: "+job)
				}) {
					t.Errorf("a monitor whose job is none of %v:\n%s", jobs, monitor)
				}
			}
		})
	}
}

// Each example has the parts that it sets: the control plane with Restate and its disk, or without Restate, or no
// control plane; monitors and policies where they are set.
func TestChartParts(t *testing.T) {
	c := openChart(t)
	for name, want := range map[string]struct{ pods, containers, claims, policies, monitors int }{
		"alone":            {1, 1, 0, 1, 0},
		"region":           {2, 2, 0, 1, 1},
		"home":             {2, 3, 1, 2, 2},
		"external-restate": {2, 2, 0, 0, 0},
		"envoy":            {3, 4, 1, 2, 0},
		"peers":            {1, 1, 0, 1, 0},
	} {
		o := c.example(t, filepath.Join(root, "deploy/kubernetes/examples", name+".yaml"))
		got := want
		got.pods, got.containers, got.claims, got.policies, got.monitors = len(o.pods), 0, o.claims, len(o.policies), len(o.monitors)
		for _, pod := range o.pods {
			got.containers += len(pod.Spec.Containers)
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// Invalid values are rejected by name before anything is installed.
func TestChartRefuses(t *testing.T) {
	c := openChart(t)
	for values, want := range map[string]string{
		`{}`:           "region",
		`{region: ""}`: "/region",
		`{region: eu}`: "node.tokensSecret",
		`{region: eu, node: {insecurePublic: true, replica: 3}}`:                                                                                                                  "replica",
		`{region: eu, node: {insecurePublic: true, replicas: 0}}`:                                                                                                                 "/node/replicas",
		`{region: eu, node: {insecurePublic: true, secretKeys: [password]}}`:                                                                                                      "/node/secretKeys",
		`{region: eu, node: {insecurePublic: true, extraEnv: {PATH: /}}}`:                                                                                                         "PATH",
		`{region: eu, node: {insecurePublic: true}, control: {enabled: true}}`:                                                                                                    "control.existingSecret",
		`{region: eu, node: {insecurePublic: true}, control: {enabled: true, cleanupInterval: often}}`:                                                                            "/control/cleanupInterval",
		`{region: eu, node: {insecurePublic: true}, control: {enabled: true, existingSecret: c, restate: {enabled: false}}}`:                                                      "externalRestate.ingress",
		`{region: eu, node: {insecurePublic: true, relayPeers: {regions: {us: [h:1]}}}, networkPolicy: {relays: [{}]}}`:                                                           "node.relayPeers.tlsSecret",
		`{region: eu, node: {insecurePublic: true, relayPeers: {regions: {us: [h:1]}, tlsSecret: c}}}`:                                                                            "networkPolicy.relays",
		`{region: eu, node: {insecurePublic: true, relayPeers: {regions: {us: []}, tlsSecret: c}}}`:                                                                               "/node/relayPeers/regions/us",
		`{region: eu, node: {insecurePublic: true, existingSecret: s, secretKeys: [redis-url], relayPeers: {regions: {us: [h:1]}, tlsSecret: c}}, networkPolicy: {relays: [{}]}}`: "node.relayPeers needs",
		`{region: eu, node: {insecurePublic: true, relayPeers: {regions: {us: [h:1]}, tlsSecret: c}}, networkPolicy: {relays: [{}]}}`:                                             "node.relayPeers needs",
		`{region: eu, image: {registry: ""}, node: {insecurePublic: true}}`:                                                                                                       "image.registry is empty",
		`{region: eu, image: {registry: registry.example}, node: {insecurePublic: true}}`:                                                                                         "/image/registry",
		`{region: eu, node: {insecurePublic: true}, serviceMonitor: {enabled: true}}`:                                                                                             "networkPolicy.monitoring",
		`{region: eu, node: {insecurePublic: true, rls: {rules: {edge.yml: ""}}}}`:                                                                                                "edge.yml",
		`{region: eu, node: {insecurePublic: true, rls: {rules: {edge.yaml: ""}, existingConfigMap: r}}}`:                                                                         "node.rls.existingConfigMap",
		`{region: eu, node: {insecurePublic: true, autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 2}}}`:                                                                "node.autoscaling.minReplicas",
		`{region: eu, node: {insecurePublic: true, autoscaling: {enabled: true}, resources: {requests: {cpu: null}}}}`:                                                            "node.resources.requests.cpu",
		`{region: eu, node: {insecurePublic: true, resources: {limits: {memory: 512m}}}}`:                                                                                         "resources.limits.memory is 512m",
		`{region: eu, node: {insecurePublic: true, redisOnlyReplicas: 2}}`:                                                                                                        "node.redisOnlyReplicas needs",
		`{region: eu, node: {insecurePublic: true, existingSecret: s, redisOnlyReplicas: -1}}`:                                                                                    "/node/redisOnlyReplicas",
		`{region: eu, node: {insecurePublic: true, existingSecret: s, redisOnlyReplicas: 2, secretKeys: [redis-url]}}`:                                                            "node.redisOnlyReplicas needs",
		`{region: eu, node: {insecurePublic: true, existingSecret: s, redisOnlyReplicas: 2, extraEnv: {WEIR_V2_OVERRIDES: "true"}}}`:                                              "WEIR_V2_OVERRIDES",
	} {
		parsed := map[string]any{"image": map[string]any{"registry": "registry.example/"}}
		if err := yaml.UnmarshalStrict([]byte(values), &parsed); err != nil {
			t.Fatal(err)
		}
		if _, err := c.render(parsed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that names %s", values, err, want)
		}
	}
}

// With peers the port for relays has a Service and a rule of its own. Without peers there is neither.
func TestChartPeers(t *testing.T) {
	c := openChart(t)
	for name, want := range map[string]bool{"peers": true, "region": false} {
		o := c.example(t, filepath.Join(root, "deploy/kubernetes/examples", name+".yaml"))
		pod, service := o.pods["eu-weir-node"], o.services["eu-weir-node-relays"]
		if got := hasPort(pod.Spec, "relays"); got != want {
			t.Errorf("%s: port for relays: %v, want %v", name, got, want)
		}
		admits := slices.ContainsFunc(o.policies["eu-weir-node"].Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
			return r.Ports[0].Port.StrVal == "relays" && len(r.Ports) == 1 && len(r.From) == 1 && r.From[0].IPBlock != nil
		})
		if admits != want {
			t.Errorf("%s: the policy lets relays in: %v, want %v", name, admits, want)
		}
		if got := len(service.Spec.Ports) == 1 && service.Spec.Ports[0].TargetPort.StrVal == "relays"; got != want {
			t.Errorf("%s: service for relays: %v, want %v", name, got, want)
		}
		if want {
			o.selected(t, service.Name, service.Spec.Selector)
		}
	}
}

// The chart's Restate has the configuration and the version of the tests' Restate.
func TestChartRestate(t *testing.T) {
	if string(read(t, filepath.Join(root, "restate/server/restate.toml"))) != string(read(t, filepath.Join(root, "deploy/kubernetes/weir/files/restate.toml"))) {
		t.Error("files/restate.toml differs from restate/server/restate.toml: copy it")
	}
	_, tag, _ := strings.Cut(composeProject(t).Services["restate"].Image, ":")
	if !strings.Contains(string(read(t, filepath.Join(root, "deploy/kubernetes/weir/values.yaml"))), "restatedev/restate:"+tag+"\n") {
		t.Errorf("values.yaml does not name Restate %s", tag)
	}
}

// The snippet for a sidecar is a restricted pod, and its node accepts its options.
func TestSidecar(t *testing.T) {
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(root, "deploy/kubernetes/sidecar.yaml")), &pod); err != nil {
		t.Fatal(err)
	}
	mustBeRestricted(t, "sidecar", pod.Spec)
	checkPod(t, "sidecar", pod.Spec)
	if hasVariable(pod.Spec, "WEIR_MYSQL_DSN_FILE") || !hasVariable(pod.Spec, "WEIR_REDIS_URL_FILE") || mounts(pod.Spec, "mysql-dsn") {
		t.Error("the sidecar is to have Redis and no MySQL")
	}
}

func containers(pod corev1.PodSpec) []corev1.Container {
	return append(slices.Clone(pod.InitContainers), pod.Containers...)
}

// mustBeRestricted compares a pod with the policy "restricted" of Pod Security Standards, and requires a read-only file
// system.
func mustBeRestricted(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	s := pod.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: its pods are not restricted: %+v", name, s)
	}
	for _, c := range containers(pod) {
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: container %s is not restricted: %+v", name, c.Name, s)
		}
	}
}

// checkPod compares our containers' variables with the programs, and their mounts with the volumes.
func checkPod(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	secrets := t.TempDir()
	for path, content := range map[string]string{
		"weir/redis-url": "redis://redis:6379", "weir/mysql-dsn": "weir:x@tcp(mysql:3306)/weir", "weir/admin-token": "x",
		"weir-tokens/tokens": "",
	} {
		if err := os.MkdirAll(filepath.Join(secrets, filepath.Dir(path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(secrets, path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range containers(pod) {
		for _, mount := range c.VolumeMounts {
			known := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
			if !known && mount.Name != "restate" { // a claim's
				t.Errorf("%s: %s mounts %s, which is no volume", name, c.Name, mount.Name)
			}
		}
		program, _, _ := strings.Cut(c.Image[strings.LastIndex(c.Image, "/")+1:], ":")
		if program != "weir-node" && program != "weir-control" {
			continue
		}
		env := make(map[string]string)
		for _, v := range c.Env {
			if v.Name != "GOMEMLIMIT" {
				env[v.Name] = v.Value
			}
			if dir := filepath.Dir(v.Value); strings.HasPrefix(dir, "/run/secrets") && !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == dir }) {
				t.Errorf("%s: %s is %s, where nothing is mounted", name, v.Name, v.Value)
			}
		}
		checkProgram(t, name, program, nil, env, secrets)
	}
}

func hasPort(pod corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name })
	})
}
