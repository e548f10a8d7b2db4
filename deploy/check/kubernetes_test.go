package check

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// objects are what a set of values installs, by kind and name.
type objects struct {
	pods     map[string]corev1.PodTemplateSpec
	services map[string]corev1.Service
	policies map[string]networkingv1.NetworkPolicy
	budgets  map[string]policyv1.PodDisruptionBudget
	monitors []string
	claims   int
}

// decode reads manifests strictly, by Kubernetes' own types.
func decode(t *testing.T, manifests []string) objects {
	t.Helper()
	o := objects{map[string]corev1.PodTemplateSpec{}, map[string]corev1.Service{}, map[string]networkingv1.NetworkPolicy{}, map[string]policyv1.PodDisruptionBudget{}, nil, 0}
	for _, manifest := range manifests {
		var head struct{ Kind string }
		if err := yaml.Unmarshal([]byte(manifest), &head); err != nil {
			t.Fatalf("%v in\n%s", err, manifest)
		}
		var err error
		strict := func(into any) { err = yaml.UnmarshalStrict([]byte(manifest), into) }
		switch head.Kind {
		case "Deployment":
			var d appsv1.Deployment
			strict(&d)
			o.pods[d.Name] = d.Spec.Template
			mustSelect(t, d.Name, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels)
		case "StatefulSet":
			var s appsv1.StatefulSet
			strict(&s)
			o.pods[s.Name] = s.Spec.Template
			o.claims = len(s.Spec.VolumeClaimTemplates)
			mustSelect(t, s.Name, s.Spec.Selector.MatchLabels, s.Spec.Template.Labels)
		case "Service":
			var s corev1.Service
			strict(&s)
			o.services[s.Name] = s
		case "NetworkPolicy":
			var n networkingv1.NetworkPolicy
			strict(&n)
			o.policies[n.Name] = n
		case "PodDisruptionBudget":
			var p policyv1.PodDisruptionBudget
			strict(&p)
			o.budgets[p.Name] = p
		case "ServiceAccount":
			strict(new(corev1.ServiceAccount))
		case "ConfigMap":
			strict(new(corev1.ConfigMap))
		case "ServiceMonitor":
			o.monitors = append(o.monitors, manifest)
		default:
			t.Fatalf("an object of the kind %q:\n%s", head.Kind, manifest)
		}
		if err != nil {
			t.Errorf("%v in\n%s", err, manifest)
		}
	}
	return o
}

func mustSelect(t *testing.T, who string, selector, labels map[string]string) {
	t.Helper()
	for key, value := range selector {
		if labels[key] != value {
			t.Errorf("%s selects %s=%s; its pods have %q", who, key, value, labels[key])
		}
	}
	if len(selector) == 0 {
		t.Errorf("%s selects everything", who)
	}
}

// Every example installs objects that Kubernetes knows, that find each other, that are
// restricted as its strictest policy asks, and whose programs take what they are told.
func TestChart(t *testing.T) {
	c := openChart(t)
	for _, path := range files(t, "deploy/kubernetes/examples/*.yaml") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			var values map[string]any
			if err := yaml.UnmarshalStrict(read(t, path), &values); err != nil {
				t.Fatal(err)
			}
			manifests, err := c.render(values)
			if err != nil {
				t.Fatal(err)
			}
			o := decode(t, manifests)
			for name, pod := range o.pods {
				mustBeRestricted(t, name, pod.Spec)
				checkPod(t, name, pod.Spec)
				service := o.services[name]
				mustSelect(t, "service "+name, service.Spec.Selector, pod.Labels)
				for _, port := range service.Spec.Ports {
					if !hasPort(pod.Spec, port.TargetPort.StrVal) {
						t.Errorf("service %s: no container has the port %s", name, port.TargetPort.StrVal)
					}
				}
				if policy, ok := o.policies[name]; ok {
					mustSelect(t, "policy "+name, policy.Spec.PodSelector.MatchLabels, pod.Labels)
					for _, rule := range policy.Spec.Ingress {
						for _, port := range rule.Ports {
							if !hasPort(pod.Spec, port.Port.StrVal) {
								t.Errorf("policy %s: no container has the port %s", name, port.Port.StrVal)
							}
						}
					}
				}
				if budget, ok := o.budgets[name]; ok {
					mustSelect(t, "budget "+name, budget.Spec.Selector.MatchLabels, pod.Labels)
				}
			}
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

// What an example says is there: the control plane with Restate and its disk, without, or
// none; monitors and policies where they are asked for.
func TestChartParts(t *testing.T) {
	c := openChart(t)
	for name, want := range map[string]struct{ pods, containers, claims, policies, monitors int }{
		"alone":            {1, 1, 0, 1, 0},
		"region":           {1, 1, 0, 1, 1},
		"home":             {2, 3, 1, 2, 2},
		"external-restate": {2, 2, 0, 0, 0},
		"peers":            {1, 1, 0, 1, 0},
	} {
		var values map[string]any
		if err := yaml.Unmarshal(read(t, filepath.Join(root, "deploy/kubernetes/examples", name+".yaml")), &values); err != nil {
			t.Fatal(err)
		}
		manifests, err := c.render(values)
		if err != nil {
			t.Fatal(err)
		}
		o := decode(t, manifests)
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

// Values that are wrong are refused before anything is installed, by name.
func TestChartRefuses(t *testing.T) {
	c := openChart(t)
	for values, want := range map[string]string{
		`{}`:           "region",
		`{region: ""}`: "/region",
		`{region: eu}`: "node.tokensSecret",
		`{region: eu, node: {insecurePublic: true, replica: 3}}`:                                                             "replica",
		`{region: eu, node: {insecurePublic: true, replicas: 0}}`:                                                            "/node/replicas",
		`{region: eu, node: {insecurePublic: true, secretKeys: [password]}}`:                                                 "/node/secretKeys",
		`{region: eu, node: {insecurePublic: true, extraEnv: {PATH: /}}}`:                                                    "PATH",
		`{region: eu, node: {insecurePublic: true}, control: {enabled: true}}`:                                               "control.existingSecret",
		`{region: eu, node: {insecurePublic: true}, control: {enabled: true, cleanupInterval: often}}`:                       "/control/cleanupInterval",
		`{region: eu, node: {insecurePublic: true}, control: {enabled: true, existingSecret: c, restate: {enabled: false}}}`: "externalRestate.ingress",
		`{region: eu, node: {insecurePublic: true, relayPeers: {regions: {us: [h:1]}}}, networkPolicy: {relays: [{}]}}`:      "node.relayPeers.tlsSecret",
		`{region: eu, node: {insecurePublic: true, relayPeers: {regions: {us: [h:1]}, tlsSecret: c}}}`:                       "networkPolicy.relays",
		`{region: eu, node: {insecurePublic: true, relayPeers: {regions: {us: []}, tlsSecret: c}}}`:                          "/node/relayPeers/regions/us",
	} {
		var parsed map[string]any
		if err := yaml.UnmarshalStrict([]byte(values), &parsed); err != nil {
			t.Fatal(err)
		}
		if _, err := c.render(parsed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that names %s", values, err, want)
		}
	}
}

// With peers the port for relays has a Service and a rule of its own, and without them nothing of it is there.
func TestChartPeers(t *testing.T) {
	c := openChart(t)
	for name, want := range map[string]bool{"peers": true, "region": false} {
		var values map[string]any
		if err := yaml.Unmarshal(read(t, filepath.Join(root, "deploy/kubernetes/examples", name+".yaml")), &values); err != nil {
			t.Fatal(err)
		}
		manifests, err := c.render(values)
		if err != nil {
			t.Fatal(err)
		}
		o := decode(t, manifests)
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
			mustSelect(t, service.Name, service.Spec.Selector, pod.Labels)
		}
	}
}

// The chart's Restate is configured and pinned as the tests' one.
func TestChartRestate(t *testing.T) {
	if string(read(t, filepath.Join(root, "restate/server/restate.toml"))) != string(read(t, filepath.Join(root, "deploy/kubernetes/weir/files/restate.toml"))) {
		t.Error("files/restate.toml differs from restate/server/restate.toml: copy it")
	}
	_, tag, _ := strings.Cut(composeProject(t).Services["restate"].Image, ":")
	if !strings.Contains(string(read(t, filepath.Join(root, "deploy/kubernetes/weir/values.yaml"))), "restatedev/restate:"+tag+"\n") {
		t.Errorf("values.yaml does not name Restate %s", tag)
	}
}

// The snippet for a sidecar is a pod, restricted, and its node takes what it is told.
func TestSidecar(t *testing.T) {
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(root, "deploy/kubernetes/sidecar.yaml")), &pod); err != nil {
		t.Fatal(err)
	}
	mustBeRestricted(t, "sidecar", pod.Spec)
	checkPod(t, "sidecar", pod.Spec)
}

func containers(pod corev1.PodSpec) []corev1.Container {
	return append(slices.Clone(pod.InitContainers), pod.Containers...)
}

// mustBeRestricted holds a pod against the policy "restricted" of Pod Security Standards,
// and a file system that is only read.
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

// checkPod holds our containers' variables against the programs, and their mounts against
// the volumes.
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
