package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	restateClusterNodes      = 3
	restateClusterConfigName = "restate.cluster.toml"
	clusterProbeEvery        = 200 * time.Millisecond
	clusterProbeTimeout      = 5 * time.Second
)

// RestateCluster is three Restate servers that replicate each other's data. They use
// restate/server/restate.cluster.toml of this repository, with the differences between nodes in that folder's
// README.md. Each node can be killed and restarted separately; two of the three must run for calls to succeed.
type RestateCluster struct {
	// Nodes are the servers; the index is the node ID less one. Their own Restart returns when the process answers; Await
	// returns when the cluster answers.
	Nodes []*Restate
}

// StartRestateCluster starts three servers and returns when each of them answers for all partitions. ctx bounds only
// the start. End the servers with Stop.
func StartRestateCluster(ctx context.Context) (*RestateCluster, error) {
	home, err := restateHome()
	if err != nil {
		return nil, fmt.Errorf("start restate cluster: find the configuration: %w", err)
	}
	for attempt := 1; ; attempt++ {
		c, err := startRestateCluster(ctx, filepath.Join(home, restateClusterConfigName))
		if err == nil || attempt == portAttempts || !errors.Is(err, errPortTaken) {
			return c, err
		}
	}
}

func startRestateCluster(ctx context.Context, config string) (*RestateCluster, error) {
	ports, err := distinctPorts(3 * restateClusterNodes)
	if err != nil {
		return nil, fmt.Errorf("start restate cluster: %w", err)
	}
	fabric := ports[:restateClusterNodes]
	c := &RestateCluster{Nodes: make([]*Restate, restateClusterNodes)}
	ctx, cancel := context.WithCancel(ctx) // no node becomes ready without the others
	defer cancel()
	err = c.each(func(i int) error {
		node, err := startRestate(ctx, RestateOptions{
			FabricPort: fabric[i], AdminPort: ports[restateClusterNodes+i], IngressPort: ports[2*restateClusterNodes+i],
			ConfigFile: config, Env: clusterEnvironment(i, fabric),
		}, (*Restate).probeAlone)
		if err != nil {
			cancel()
			return fmt.Errorf("node %d: %w", i+1, err)
		}
		c.Nodes[i] = node
		return nil
	})
	if err == nil {
		err = c.Await(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start restate cluster: %w", err), c.Stop())
	}
	return c, nil
}

// clusterEnvironment returns the settings that differ from node to node.
func clusterEnvironment(i int, fabric []int) []string {
	addresses := make([]string, len(fabric))
	for j, port := range fabric {
		addresses[j] = fmt.Sprintf("%q", "http://"+newPort(port).addr())
	}
	env := []string{
		"RESTATE_NODE_NAME=weir-" + strconv.Itoa(i+1),
		"RESTATE_FORCE_NODE_ID=" + strconv.Itoa(i+1),
		"RESTATE_ADVERTISED_ADDRESS=http://" + newPort(fabric[i]).addr(),
		"RESTATE_METADATA_CLIENT__ADDRESSES=[" + strings.Join(addresses, ",") + "]",
	}
	if i == 0 {
		env = append(env, "RESTATE_AUTO_PROVISION=true")
	}
	return env
}

// Await returns when every running node answers for all partitions, independent of their leaders, and all three keep
// the metadata.
func (c *RestateCluster) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(clusterProbeEvery)
	defer tick.Stop()
	for {
		err := c.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("restate cluster is not ready: %w; last probe: %w", ctx.Err(), err)
		}
	}
}

func (c *RestateCluster) probe(ctx context.Context) error {
	return c.each(func(i int) error {
		node := c.Nodes[i]
		select {
		case <-node.Exited():
			return nil
		default:
		}
		ctx, cancel := context.WithTimeout(ctx, clusterProbeTimeout)
		defer cancel()
		if err := node.probe(ctx); err != nil {
			return err
		}
		return node.keepsMetadata(ctx)
	})
}

// keepsMetadata: a cluster is provisioned with one metadata server, which the others join. Until they have joined, the
// loss of that server stops everything.
func (r *Restate) keepsMetadata(ctx context.Context) error {
	text, err := call(ctx, plainClient(), http.MethodGet, r.AdminURL()+"/cluster-health", "")
	if err != nil {
		return err
	}
	var health struct {
		Metadata struct {
			Members []int `json:"members"`
		} `json:"metadata_cluster_health"`
	}
	if err := json.Unmarshal(text, &health); err != nil {
		return fmt.Errorf("read the cluster's health: %w", err)
	}
	if len(health.Metadata.Members) < restateClusterNodes {
		return fmt.Errorf("nodes %v keep the metadata, want %d", health.Metadata.Members, restateClusterNodes)
	}
	return nil
}

// Leads returns the number of partitions that the server leads.
func (r *Restate) Leads(ctx context.Context) (int, error) {
	text, err := call(ctx, plainClient(), http.MethodGet, r.FabricURL()+"/metrics", "")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "restate_num_active_partition_leaders{"); ok {
			_, value, _ = strings.Cut(value, "} ")
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, errors.New("the server's metrics lack the number of partitions that it leads")
}

// Stop ends the servers that were started.
func (c *RestateCluster) Stop() error {
	return c.each(func(i int) error {
		if c.Nodes[i] == nil {
			return nil
		}
		return c.Nodes[i].Stop()
	})
}

// each calls do for all nodes concurrently.
func (c *RestateCluster) each(do func(i int) error) error {
	errs := make([]error, len(c.Nodes))
	var wg sync.WaitGroup
	for i := range c.Nodes {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// distinctPorts returns n free ports. Another process can take a port first.
func distinctPorts(n int) ([]int, error) {
	var ports []int
	for drawn := map[int]bool{}; len(ports) < n; {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		if !drawn[port] {
			drawn[port] = true
			ports = append(ports, port)
		}
	}
	return ports, nil
}
