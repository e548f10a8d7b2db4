package servers

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/await"
)

// "Each node can be killed and restarted separately": the other two answer for all partitions and accept changes, and
// the restarted node has these changes.
func TestRestateClusterSurvivesItsNodes(t *testing.T) {
	t.Parallel()
	c := RestateClusterForTest(t)
	for i, node := range c.Nodes {
		if _, err := os.Stat(filepath.Join(node.Dir(), fmt.Sprintf("weir-%d", i+1), ".cluster-marker")); err != nil {
			t.Errorf("node %d: %v", i+1, err)
		}
	}
	leader := mostLed(t, c)
	for k, i := range []int{leader, (leader + 1) % len(c.Nodes)} {
		must(t, c.Nodes[i].Kill())
		must(t, c.Await(t.Context()))
		name := fmt.Sprintf("Lasting%d", k)
		registerService(t, c.Nodes[(i+1)%len(c.Nodes)], name)
		must(t, c.Nodes[i].Restart(t.Context()))
		must(t, c.Await(t.Context()))
		wantService(t, c.Nodes[i], name)
	}
}

// mostLed returns the node that leads the most partitions, as soon as nodes report leaders.
func mostLed(t *testing.T, c *RestateCluster) (most int) {
	t.Helper()
	await.NoError(t, "a leader", func() error {
		leads := make([]int, len(c.Nodes))
		for i, node := range c.Nodes {
			var err error
			if leads[i], err = node.Leads(t.Context()); err != nil {
				return err
			}
			if leads[i] > leads[most] {
				most = i
			}
		}
		if leads[most] == 0 {
			return fmt.Errorf("nobody leads a partition: %v", leads)
		}
		return nil
	})
	return most
}

// wantService waits until the node has a service, after it has read the cluster's metadata again.
func wantService(t *testing.T, node *Restate, name string) {
	t.Helper()
	await.NoError(t, "the service "+name, func() error {
		if services := restateCall(t, http.MethodGet, node.AdminURL()+"/services", ""); !strings.Contains(services, `"`+name+`"`) {
			return fmt.Errorf("not among %s", services)
		}
		return nil
	})
}

// The cluster's file equals the single node's, except for the settings of a cluster. Every variable that tests set for
// a node is in the runbook, so the tests use the documented configuration.
func TestRestateClusterConfiguration(t *testing.T) {
	t.Parallel()
	home, err := restateHome()
	must(t, err)
	single, cluster := dumpedConfig(t, filepath.Join(home, restateConfigName)), dumpedConfig(t, filepath.Join(home, restateClusterConfigName), "RESTATE_NODE_NAME=weir-1")
	var differ []string
	for _, line := range cluster {
		if !slices.Contains(single, line) {
			differ = append(differ, line)
		}
	}
	if want := []string{"auto-provision = false", "default-replication = 2"}; !slices.Equal(differ, want) || len(single) != len(cluster) {
		t.Errorf("the files differ in %q (%d and %d lines), want %q", differ, len(single), len(cluster), want)
	}

	runbook, err := os.ReadFile(filepath.Join(home, "README.md"))
	must(t, err)
	env := clusterEnvironment(0, []int{1, 2, 3})
	for _, setting := range env {
		if name, _, _ := strings.Cut(setting, "="); !strings.Contains(string(runbook), name) {
			t.Errorf("README.md does not name %s", name)
		}
	}
	dump := strings.Join(dumpedConfig(t, filepath.Join(home, restateClusterConfigName), env...), "\n")
	for _, want := range []string{
		`node-name = "weir-1"`, `force-node-id = 1`, `auto-provision = true`, `advertised-address = "http://127.0.0.1:1/"`,
		`"http://127.0.0.1:1/",`, `"http://127.0.0.1:2/",`, `"http://127.0.0.1:3/",`,
	} {
		if !strings.Contains(dump, want) {
			t.Errorf("the server takes no %s from the environment", want)
		}
	}
}

func dumpedConfig(t *testing.T, file string, env ...string) []string {
	t.Helper()
	program, err := FindRestate()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), program, "--config-file", file, "--dump-config")
	r := &Restate{ingress: newPort(1), admin: newPort(2), fabric: newPort(3)}
	cmd.Env = r.environment(RestateOptions{Env: env})
	dump, err := cmd.Output()
	must(t, err)
	return strings.Split(string(dump), "\n")
}
