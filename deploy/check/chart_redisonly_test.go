package check

import (
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// With node.redisOnlyReplicas some nodes of a region have MySQL and relay it, the others neither its DSN nor anything
// of the relay. Callers, metrics and the disruption budget find both.
func TestChartRedisOnly(t *testing.T) {
	c := openChart(t)
	var values map[string]any
	if err := yaml.Unmarshal(read(t, filepath.Join(root, "deploy/kubernetes/examples/peers.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	values["node"].(map[string]any)["redisOnlyReplicas"] = 5.0
	o := c.objects(t, values)
	o.mustFindEachOther(t)
	const withMySQL, redisOnly = "eu-weir-node", "eu-weir-node-redis-only"
	for name, want := range map[string]bool{withMySQL: true, redisOnly: false} {
		pod := o.pods[name].Spec
		checkPod(t, name, pod)
		for what, got := range map[string]bool{
			"the DSN's variable":  hasVariable(pod, "WEIR_MYSQL_DSN_FILE"),
			"the DSN's file":      mounts(pod, "mysql-dsn"),
			"the peers' variable": hasVariable(pod, "WEIR_RELAY_PEERS"),
			"the relays' port":    hasPort(pod, "relays"),
			"the relays' secret":  slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "relay" }),
		} {
			if got != want {
				t.Errorf("%s has %s: %v, want %v", name, what, got, want)
			}
		}
		if !hasVariable(pod, "WEIR_REDIS_URL_FILE") || !mounts(pod, "redis-url") {
			t.Errorf("%s has no Redis", name)
		}
	}
	if o.replicas[withMySQL] != 3 || o.replicas[redisOnly] != 5 {
		t.Errorf("replicas: %v", o.replicas)
	}
	both := []string{withMySQL, redisOnly}
	if got := o.selected(t, "calls", o.services[withMySQL].Spec.Selector); !slices.Equal(got, both) {
		t.Errorf("calls reach %v", got)
	}
	if got := o.selected(t, "relays", o.services[withMySQL+"-relays"].Spec.Selector); !slices.Equal(got, both[:1]) {
		t.Errorf("relays of other regions reach %v", got)
	}
	if got := o.selected(t, "the budget", o.budgets[withMySQL].Spec.Selector.MatchLabels); !slices.Equal(got, both) {
		t.Errorf("the budget counts %v", got)
	}
	if got := o.selected(t, "the policy", o.policies[withMySQL].Spec.PodSelector.MatchLabels); !slices.Equal(got, both) {
		t.Errorf("the policy holds for %v", got)
	}
}

func hasVariable(pod corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(containers(pod), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == name })
	})
}

// mounts reports whether a Secret's key becomes a file of the pod.
func mounts(pod corev1.PodSpec, key string) bool {
	return slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.Secret != nil && slices.ContainsFunc(v.Secret.Items, func(i corev1.KeyToPath) bool { return i.Key == key })
	})
}
