package check

import (
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	scalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// objects are the objects that a set of values installs, by kind and name.
type objects struct {
	pods     map[string]corev1.PodTemplateSpec
	owners   map[string]map[string]string // by name, which pods a Deployment or StatefulSet takes for its own
	replicas map[string]int32             // of Deployments
	services map[string]corev1.Service
	policies map[string]networkingv1.NetworkPolicy
	budgets  map[string]policyv1.PodDisruptionBudget
	scalers  map[string]scalingv2.HorizontalPodAutoscaler
	configs  map[string]corev1.ConfigMap
	monitors []string
	claims   int
}

// decode reads manifests strictly, by Kubernetes' own types.
func decode(t *testing.T, manifests []string) objects {
	t.Helper()
	o := objects{pods: map[string]corev1.PodTemplateSpec{}, owners: map[string]map[string]string{}, replicas: map[string]int32{},
		services: map[string]corev1.Service{}, policies: map[string]networkingv1.NetworkPolicy{},
		budgets: map[string]policyv1.PodDisruptionBudget{}, scalers: map[string]scalingv2.HorizontalPodAutoscaler{},
		configs: map[string]corev1.ConfigMap{}}
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
			o.pods[d.Name], o.owners[d.Name] = d.Spec.Template, d.Spec.Selector.MatchLabels
			if d.Spec.Replicas != nil {
				o.replicas[d.Name] = *d.Spec.Replicas
			}
		case "StatefulSet":
			var s appsv1.StatefulSet
			strict(&s)
			o.pods[s.Name], o.owners[s.Name] = s.Spec.Template, s.Spec.Selector.MatchLabels
			o.claims = len(s.Spec.VolumeClaimTemplates)
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
		case "HorizontalPodAutoscaler":
			var h scalingv2.HorizontalPodAutoscaler
			strict(&h)
			o.scalers[h.Name] = h
		case "ConfigMap":
			var c corev1.ConfigMap
			strict(&c)
			o.configs[c.Name] = c
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

// selected returns the names of the pods that have a selector's labels, at least one.
func (o objects) selected(t *testing.T, who string, selector map[string]string) (names []string) {
	t.Helper()
	for name, pod := range o.pods {
		both := maps.Clone(selector)
		maps.DeleteFunc(both, func(key, value string) bool { return pod.Labels[key] != value })
		if len(selector) > 0 && len(both) == len(selector) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Errorf("%s selects %v, which no pod has", who, selector)
	}
	slices.Sort(names)
	return names
}

// mustFindEachOther compares selectors of pods with the pods and their ports.
func (o objects) mustFindEachOther(t *testing.T) {
	t.Helper()
	for name, selector := range o.owners {
		if pods := o.selected(t, name, selector); !slices.Equal(pods, []string{name}) {
			t.Errorf("%s takes the pods of %v for its own", name, pods)
		}
	}
	served := make(map[string]bool)
	for name, service := range o.services {
		for _, pod := range o.selected(t, "service "+name, service.Spec.Selector) {
			served[pod] = true
			for _, port := range service.Spec.Ports {
				if !hasPort(o.pods[pod].Spec, port.TargetPort.StrVal) {
					t.Errorf("service %s: no container of %s has the port %s", name, pod, port.TargetPort.StrVal)
				}
			}
		}
	}
	for name := range o.pods {
		if !served[name] {
			t.Errorf("no service selects %s", name)
		}
	}
	for name, policy := range o.policies {
		pods := o.selected(t, "policy "+name, policy.Spec.PodSelector.MatchLabels)
		for _, rule := range policy.Spec.Ingress {
			for _, port := range rule.Ports {
				if !slices.ContainsFunc(pods, func(pod string) bool { return hasPort(o.pods[pod].Spec, port.Port.StrVal) }) {
					t.Errorf("policy %s: no container has the port %s", name, port.Port.StrVal)
				}
			}
		}
	}
	for name, budget := range o.budgets {
		o.selected(t, "budget "+name, budget.Spec.Selector.MatchLabels)
	}
}

// example returns the objects that an example installs.
func (c chart) example(t *testing.T, path string) objects {
	t.Helper()
	var values map[string]any
	if err := yaml.UnmarshalStrict(read(t, path), &values); err != nil {
		t.Fatal(err)
	}
	return c.objects(t, values)
}

func (c chart) objects(t *testing.T, values map[string]any) objects {
	t.Helper()
	manifests, err := c.render(values)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, manifests)
}
