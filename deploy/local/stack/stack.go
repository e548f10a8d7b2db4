// Package stack runs all of Weir on one machine: MariaDB or MySQL, a Redis for each region, Restate, the control plane
// and the nodes, each a process of its own, on loopback. Nodes with MySQL compete for the lease of their region's
// relay; the others have Redis alone. `make run` uses it with fixed ports. The tests of the whole use it with free
// ports, and kill processes.
package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirhq/weir/shared/servers"
)

// Options say which programs, folders and ports a stack uses. Bin and Data are required.
type Options struct {
	Bin  string // directory with weir-node and weir-control
	Data string // directory for data and logs, kept

	Engine         servers.Engine    // default servers.PreferredSQL
	Redis          servers.RedisKind // default servers.SystemRedis
	Regions        []string          // default eu and us
	NodesPerRegion int               // default 2
	Ports          Ports             // zero: free ports

	// CleanupInterval is how often expired rows are deleted; 0 is the control plane's
	// default.
	CleanupInterval time.Duration

	ControlArgs []string // further flags of weir-control
	NodeArgs    []string // and of every weir-node

	// Password, if any, is that of the users as whom the programs call SQL and Redis. root at
	// SQL and Redis's default user keep needing none.
	Password string
}

// Ports are TCP ports on 127.0.0.1. 0 stands for a free port.
type Ports struct {
	Node, NodeGRPC, NodeAdmin func(region, node int) int
	Redis                     func(region int) int

	API, Handlers                               int
	SQL                                         int
	RestateIngress, RestateAdmin, RestateFabric int
}

// Database is the schema's name in MariaDB or MySQL.
const Database = "weir"

// Stack is everything that runs.
type Stack struct {
	SQL     *servers.SQL
	Restate *servers.Restate
	Redis   map[string]*servers.Redis // by region
	Control *servers.Program
	Nodes   []*Node // region by region

	options  Options
	identity string // public half of Restate's key
}

// Node is a running weir-node.
type Node struct {
	*servers.Program
	Region, ID string
}

// URL returns the address at which the node serves calls.
func (n *Node) URL() string { return "http://" + n.Addrs()[0] }

// AdminURL returns the address at which the node serves health, metrics and profiles.
func (n *Node) AdminURL() string { return "http://" + n.Addrs()[1] }

// API returns the address of the operators' API.
func (s *Stack) API() string { return "http://" + s.Control.Addrs()[0] }

// GRPCAddr returns the address at which the node serves calls by gRPC: of this API and of Envoy's.
func (n *Node) GRPCAddr() string { return n.Addrs()[2] }

// DSN returns the data source name of the database, for go-sql-driver.
func (s *Stack) DSN() string { return s.SQL.DSN(Database) }

// Start starts everything and returns when all of it is ready. After an error
// nothing is left running.
func Start(ctx context.Context, o Options) (*Stack, error) {
	if len(o.Regions) == 0 {
		o.Regions = []string{"eu", "us"}
	}
	if o.Engine == "" {
		o.Engine = servers.PreferredSQL(ctx)
	}
	if o.Redis == "" {
		o.Redis = servers.SystemRedis
	}
	if o.NodesPerRegion == 0 {
		o.NodesPerRegion = 2
	}
	s := &Stack{options: o, Redis: make(map[string]*servers.Redis)}
	for _, step := range []func(context.Context) error{s.startServers, s.startControl, s.startNodes} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
	}
	return s, nil
}

// startServers starts the servers that are not Weir's, all at once.
func (s *Stack) startServers(ctx context.Context) error {
	o := s.options
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		if s.SQL, err = servers.StartSQL(ctx, o.Engine,
			servers.Options{Dir: s.dir(string(o.Engine)), Port: o.Ports.SQL}); err != nil {
			return err
		}
		return errors.Join(s.SQL.CreateDatabase(ctx, Database), s.createUsers(ctx))
	})
	g.Go(func() (err error) {
		key, err := s.identityKey(ctx)
		if err != nil {
			return err
		}
		s.Restate, err = servers.StartRestate(ctx, servers.RestateOptions{Options: servers.Options{Dir: s.dir("restate")},
			IngressPort: o.Ports.RestateIngress, AdminPort: o.Ports.RestateAdmin, FabricPort: o.Ports.RestateFabric,
			Env: []string{"RESTATE_WORKER__INVOKER__REQUEST_IDENTITY_PRIVATE_KEY_PEM_FILE=" + key}})
		return err
	})
	redis := make([]*servers.Redis, len(o.Regions))
	for i, region := range o.Regions {
		g.Go(func() (err error) {
			port := 0
			if o.Ports.Redis != nil {
				port = o.Ports.Redis(i)
			}
			redis[i], err = servers.StartRedis(ctx, o.Redis, servers.Options{Dir: s.dir("redis-" + region), Port: port,
				Args: s.redisArgs()})
			return err
		})
	}
	err := g.Wait()
	for i, r := range redis {
		if r != nil {
			s.Redis[o.Regions[i]] = r
		}
	}
	return err
}

// identityKey makes the key with which Restate signs its requests, unless the key exists, and returns its file. The
// signature matters because other programs of this machine reach the handlers' port, too.
func (s *Stack) identityKey(ctx context.Context) (file string, err error) {
	if err := os.MkdirAll(s.options.Data, 0o700); err != nil {
		return "", err
	}
	file = s.dir("restate-identity.pem")
	cmd := exec.CommandContext(ctx, filepath.Join(s.options.Bin, "weir-control"), "identity-key", "--out="+file)
	public, err := cmd.Output()
	if err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("make the key that Restate signs with: %w", err)
	}
	s.identity = strings.TrimSpace(string(public))
	return file, nil
}

// startControl starts the control plane, which brings the schema up to date.
func (s *Stack) startControl(ctx context.Context) error {
	o := s.options
	redis, err := s.controlRedisArgs()
	if err != nil {
		return err
	}
	s.Control, err = servers.StartProgram(ctx, servers.ProgramOptions{
		Name: "weir-control", Path: filepath.Join(o.Bin, "weir-control"),
		Options: servers.Options{Dir: s.dir("control")},
		Ports:   []int{o.Ports.API, o.Ports.Handlers},
		Args: func(addrs []string) []string {
			args := []string{
				"--api-listen=" + addrs[0],
				"--handlers-listen=" + addrs[1], "--handlers-url=http://" + addrs[1],
				"--restate-ingress=" + s.Restate.IngressURL(), "--restate-admin=" + s.Restate.AdminURL(),
				"--restate-identity-key=" + s.identity,
			}
			if o.CleanupInterval > 0 {
				args = append(args, "--cleanup-interval="+o.CleanupInterval.String())
			}
			return append(append(args, redis...), o.ControlArgs...)
		},
		Env:   []string{"WEIR_MYSQL_DSN=" + s.ControlDSN()},
		Ready: func(addrs []string) string { return "http://" + addrs[0] + "/readyz" },
	})
	return err
}

func (s *Stack) startNodes(ctx context.Context) error {
	o := s.options
	s.Nodes = make([]*Node, len(o.Regions)*o.NodesPerRegion)
	g, ctx := errgroup.WithContext(ctx)
	for r, region := range o.Regions {
		for i := range o.NodesPerRegion {
			g.Go(func() error {
				node, err := s.startNode(ctx, region, r, i)
				s.Nodes[r*o.NodesPerRegion+i] = node
				return err
			})
		}
	}
	return g.Wait()
}

func (s *Stack) startNode(ctx context.Context, region string, r, i int) (*Node, error) {
	o := s.options
	id := fmt.Sprintf("%s-%d", region, i+1)
	ports := []int{0, 0, 0}
	if o.Ports.Node != nil {
		ports = []int{o.Ports.Node(r, i), o.Ports.NodeAdmin(r, i), o.Ports.NodeGRPC(r, i)}
	}
	p, err := servers.StartProgram(ctx, servers.ProgramOptions{
		Name: "weir-node-" + id, Path: filepath.Join(o.Bin, "weir-node"),
		Options: servers.Options{Dir: s.dir("node-" + id)},
		Ports:   ports,
		Args: func(addrs []string) []string {
			return append([]string{"--listen=" + addrs[0], "--admin-listen=" + addrs[1], "--grpc-listen=" + addrs[2],
				"--region=" + region, "--node-id=" + id}, o.NodeArgs...)
		},
		Env:   s.nodeEnv(region, id),
		Ready: func(addrs []string) string { return "http://" + addrs[1] + "/readyz" },
	})
	if err != nil {
		return nil, err
	}
	return &Node{Program: p, Region: region, ID: id}, nil
}

// nodeEnv returns the environment with the stores of a node.
func (s *Stack) nodeEnv(region, id string) []string {
	env := []string{"WEIR_REDIS_URL=" + s.RedisURL(region)}
	if s.HasMySQL(id) {
		env = append(env, "WEIR_MYSQL_DSN="+s.NodeDSN())
	}
	return env
}

// HasMySQL reports whether a node has MySQL, and so competes for the lease of its region's relay. All nodes but us-2
// do. So in eu another node takes over the relay when its node ends, and us has a node that needs its region's relay.
func (s *Stack) HasMySQL(id string) bool { return id != "us-2" }

// Stop ends everything in order: the nodes drain while their servers still run.
func (s *Stack) Stop() error {
	var g errgroup.Group
	for _, n := range s.Nodes {
		if n != nil {
			g.Go(n.Stop)
		}
	}
	if s.Control != nil {
		g.Go(s.Control.Stop)
	}
	errs := []error{g.Wait()}
	var below errgroup.Group
	for _, r := range s.Redis {
		below.Go(r.Stop)
	}
	if s.Restate != nil {
		below.Go(s.Restate.Stop)
	}
	if s.SQL != nil {
		below.Go(s.SQL.Stop)
	}
	return errors.Join(append(errs, below.Wait())...)
}

// Servers returns the processes that are not nodes, by name. Nodes decide without them while they
// are down.
func (s *Stack) Servers() map[string]*servers.Process {
	all := map[string]*servers.Process{
		s.SQL.Engine.Title(): s.SQL.Process, "Restate": s.Restate.Process, "weir-control": s.Control.Process,
	}
	for region, r := range s.Redis {
		all["Redis of "+region] = r.Process
	}
	return all
}

func (s *Stack) dir(name string) string { return filepath.Join(s.options.Data, name) }
