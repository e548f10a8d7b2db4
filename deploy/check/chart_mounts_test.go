package check

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// The chart mounts every kind of file that the programs read: rules, certificates for callers and for the API, a private
// authority for the stores, and files of the operator's own.
func TestTheChartMountsFiles(t *testing.T) {
	o := openChart(t).example(t, filepath.Join(root, "deploy/kubernetes/examples/envoy.yaml"))
	if rules := o.configs["eu-weir-rls"].Data["edge.yaml"]; !strings.HasPrefix(rules, "domain: edge\n") {
		t.Errorf("the ConfigMap of rules has %q", rules)
	}
	for _, pod := range []string{"eu-weir-node", "eu-weir-node-redis-only"} {
		for variable, file := range map[string]string{
			"WEIR_RLS_RULES":          "/etc/weir/rls",
			"WEIR_TLS_CERT_FILE":      "/run/secrets/weir-tls/tls.crt",
			"WEIR_TLS_KEY_FILE":       "/run/secrets/weir-tls/tls.key",
			"WEIR_TLS_CLIENT_CA_FILE": "/run/secrets/weir-tls/ca.crt",
		} {
			if got := variableOf(o.pods[pod].Spec, "weir-node", variable); got != file {
				t.Errorf("%s: %s is %q, want %q", pod, variable, got, file)
			}
		}
		mustMount(t, o.pods[pod].Spec, "weir-node", "/etc/weir/rls", "/run/secrets/weir-tls", "/run/secrets/weir-stores", "/etc/banner")
	}
	control := o.pods["eu-weir-control"].Spec
	mustMount(t, control, "weir-control", "/run/secrets/weir-tls", "/run/secrets/weir-stores", "/run/secrets/weir-orders")
	for _, c := range control.Containers {
		if c.Name == "weir-control" && (c.LivenessProbe.HTTPGet.Scheme != corev1.URISchemeHTTPS || c.ReadinessProbe.HTTPGet.Scheme != corev1.URISchemeHTTPS) {
			t.Error("the API serves HTTPS, and a probe does not use it")
		}
	}
}

// Services name the protocol of each port, so that meshes and gateways speak TLS to ports that do, and plaintext to others.
func TestServicesNameTheProtocolOfTheirPorts(t *testing.T) {
	c := openChart(t)
	for example, want := range map[string]map[string]string{
		"envoy": {"http": "https", "grpc": "https", "api": "https"},
		"home":  {"http": "http", "grpc": "kubernetes.io/h2c", "api": "http"},
	} {
		o := c.example(t, filepath.Join(root, "deploy/kubernetes/examples", example+".yaml"))
		found := 0
		for _, service := range []string{"eu-weir-node", "eu-weir-control"} {
			for _, port := range o.services[service].Spec.Ports {
				if protocol, ok := want[port.Name]; !ok {
					continue
				} else if found++; port.AppProtocol == nil || *port.AppProtocol != protocol {
					t.Errorf("%s: the port %s of %s has the protocol %v, want %s", example, port.Name, service, port.AppProtocol, protocol)
				}
			}
		}
		if found != len(want) {
			t.Errorf("%s: found %d of the ports %v", example, found, want)
		}
	}
}

// The key that signs orders comes from a Secret of the operator's choice, so that it outlives weir-control. The pod
// mounts the file that the variable names. Without a Secret there is neither.
func TestTheChartMountsTheKeyOfOrders(t *testing.T) {
	c := openChart(t)
	for example, secret := range map[string]string{"envoy": "weir-control", "external-restate": "weir-orders", "home": ""} {
		pod := c.example(t, filepath.Join(root, "deploy/kubernetes/examples", example+".yaml")).pods["eu-weir-control"].Spec
		file := variableOf(pod, "weir-control", "WEIR_ORDER_KEY_FILE")
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "orders" })
		if secret == "" {
			if file != "" || i >= 0 {
				t.Errorf("%s names no Secret of a key, and the file is %q (volume %d)", example, file, i)
			}
			continue
		}
		if file != "/run/secrets/weir-orders/order-key" {
			t.Errorf("%s: the file of the key is %q", example, file)
		}
		mustMount(t, pod, "weir-control", "/run/secrets/weir-orders")
		want := []corev1.KeyToPath{{Key: "order-key", Path: "order-key"}}
		if i < 0 || pod.Volumes[i].Secret.SecretName != secret || !slices.Equal(pod.Volumes[i].Secret.Items, want) {
			t.Errorf("%s mounts no key order-key of the Secret %s: volumes %+v", example, secret, pod.Volumes)
		}
	}
}

func variableOf(pod corev1.PodSpec, container, name string) string {
	for _, c := range pod.Containers {
		for _, v := range c.Env {
			if c.Name == container && v.Name == name {
				return v.Value
			}
		}
	}
	return ""
}

func mustMount(t *testing.T, pod corev1.PodSpec, container string, paths ...string) {
	t.Helper()
	for _, c := range pod.Containers {
		for _, path := range paths {
			if c.Name == container && !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path }) {
				t.Errorf("%s does not mount %s", container, path)
			}
		}
	}
}

// Go's memory limit leaves a tenth of the container's to memory that the runtime does not count.
func TestTheMemoryLimitIsBelowTheContainers(t *testing.T) {
	c := openChart(t)
	for _, limit := range []string{"512Mi", "1Gi", "1.5Gi", "600M", "536870912"} {
		var values map[string]any
		if err := yaml.Unmarshal([]byte("{region: eu, image: {pullPolicy: Never}, node: {insecurePublic: true, resources: {limits: {memory: "+limit+"}}}}"), &values); err != nil {
			t.Fatal(err)
		}
		got, err := strconv.ParseInt(variableOf(c.objects(t, values).pods["eu-weir-node"].Spec, "weir-node", "GOMEMLIMIT"), 10, 64)
		most := resource.MustParse(limit)
		if share := float64(got) / float64(most.Value()); err != nil || share < 0.89 || share > 0.91 {
			t.Errorf("limits.memory %s: GOMEMLIMIT is %d, %.2f of it (%v)", limit, got, share, err)
		}
	}
}

// An autoscaler alone sets the number of replicas: a Deployment with a number would set it back at each upgrade. If
// there are nodes without MySQL, the autoscaler scales these nodes, so that replicas alone sets the number of
// connections to MySQL.
func TestTheAutoscalerAloneSaysHowManyReplicas(t *testing.T) {
	c := openChart(t)
	scaled := c.example(t, filepath.Join(root, "deploy/kubernetes/examples/envoy.yaml"))
	if replicas, ok := scaled.replicas["eu-weir-node-redis-only"]; ok {
		t.Errorf("the scaled Deployment names %d replicas", replicas)
	}
	if got := scaled.replicas["eu-weir-node"]; got != 2 {
		t.Errorf("%d nodes with MySQL, want 2", got)
	}
	scaler := scaled.scalers["eu-weir-node"].Spec
	if scaler.ScaleTargetRef.Name != "eu-weir-node-redis-only" || *scaler.MinReplicas != 2 || scaler.MaxReplicas != 20 {
		t.Errorf("the scaler is %+v", scaler)
	}

	alone := c.objects(t, map[string]any{"region": "eu", "image": map[string]any{"pullPolicy": "Never"}, "node": map[string]any{"insecurePublic": true, "autoscaling": map[string]any{"enabled": true}}})
	if target := alone.scalers["eu-weir-node"].Spec.ScaleTargetRef.Name; target != "eu-weir-node" || len(alone.replicas) != 0 {
		t.Errorf("the scaler's target is %s, and Deployments name %v replicas", target, alone.replicas)
	}
}

// If a ServiceMonitor makes Prometheus scrape a port, the policy of the same example lets Prometheus' namespace reach
// it.
func TestPoliciesLetMonitorsScrape(t *testing.T) {
	c := openChart(t)
	for _, path := range files(t, "deploy/kubernetes/examples/*.yaml") {
		o := c.example(t, path)
		if len(o.monitors) == 0 {
			continue
		}
		for name, policy := range o.policies {
			if !slices.ContainsFunc(policy.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
				return slices.ContainsFunc(r.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.StrVal == "admin" || p.Port.StrVal == "api" }) &&
					slices.ContainsFunc(r.From, func(from networkingv1.NetworkPolicyPeer) bool {
						return from.NamespaceSelector != nil && from.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] == "monitoring"
					})
			}) {
				t.Errorf("%s: the policy %s lets no Prometheus of another namespace in", filepath.Base(path), name)
			}
		}
	}
}
