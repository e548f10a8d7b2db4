package nodecmd

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/hosts"
	"github.com/weirhq/weir/shared/strict"
	"github.com/weirhq/weir/shared/window"
)

// Config has the settings of one node: addresses, names, secrets and bounds. Settings that must be equal on all nodes
// of a fleet are tuning. They come from the database, or for a node without stores from SettingsFile.
//
// Each field is a flag, an environment variable (WEIR_ and the flag's name in capitals) and a key of the file (the
// flag's name). A flag overrides the environment, the environment overrides the file, and the file overrides the
// default.
type Config struct {
	Listen      string `default:"127.0.0.1:7001" help:"Address that serves calls: gRPC, gRPC-Web, Connect and JSON."`
	GRPCListen  string `name:"grpc-listen" default:"127.0.0.1:7002" help:"Address that serves plain gRPC, at the lowest cost a call; empty: gRPC is served at listen only."`
	AdminListen string `default:"127.0.0.1:7101" help:"Address that serves health, metrics and profiles."`

	Region string `placeholder:"NAME" help:"Name of this node's region, 1 to 48 bytes. Required with Redis or MySQL."`
	NodeID string `placeholder:"NAME" help:"Name of this node, 1 to 64 bytes, unique in the fleet. Default: the host's name and a random suffix."`

	RedisURL     string `placeholder:"URL" help:"The region's Redis: redis://[user:password@]host:port[/db], rediss:// for TLS, ?cluster=true for a cluster; several independent servers as name=URL each, separated by spaces. With a password it must come from the environment or a file."`
	RedisURLFile string `placeholder:"PATH" help:"File with the Redis URL, or with several, one per line."`
	MySQLDSN     string `name:"mysql-dsn" placeholder:"DSN" help:"The global MySQL: user:password@tcp(host:3306)/database. Some nodes of a region need it; the others get settings through Redis. With a password it must come from the environment or a file."`
	MySQLDSNFile string `name:"mysql-dsn-file" placeholder:"PATH" help:"File with the MySQL DSN."`

	SettingsFile string `placeholder:"PATH" help:"Namespaces, overrides and tuning of a node without Redis and MySQL, as weirctl export writes them: YAML or JSON. Read again when it changes."`

	EntriesMax  int           `default:"300000" help:"Most keys held in memory (1 to 100000000); a key takes about 200 B and the names."`
	NewKeysMax  int           `default:"2000" help:"Most new keys per second and namespace that a region's nodes create in Redis, for windows of 10 minutes or longer (1 to 1000000); bursts of 30 s worth are allowed. Each further key is counted by its node alone until it is used again."`
	ReadTimeout time.Duration `default:"50ms" help:"How long a decision may wait for Redis, 1ms to 10s."`
	MaxInFlight int           `default:"1024" help:"Most calls in flight (1 to 1000000); further calls are rejected."`

	ConnectionsMax int    `default:"4096" help:"Most connections of each port for calls (1 to 1000000). A further one closes the longest idle connection of the address with the most."`
	AllowedHosts   string `placeholder:"NAME,…" help:"Host names, in addition to loopback names, that a port on loopback accepts over HTTP/1.x, for example a proxy's on this machine."`

	TLSCertFile     string `name:"tls-cert-file" placeholder:"PATH" help:"Certificate for calls, with its chain, in PEM. Read again when it changes."`
	TLSKeyFile      string `name:"tls-key-file" placeholder:"PATH" help:"Key of that certificate."`
	TLSClientCAFile string `name:"tls-client-ca-file" placeholder:"PATH" help:"CAs of callers' certificates, in PEM. Callers must then present one."`
	TokensFile      string `placeholder:"PATH" help:"SHA-256 hashes of the bearer tokens that callers may use, one per line, as sha256sum prints them. workspaces=a,b and actions=limit,read after a hash restrict its token. Read again when it changes."`

	RelayPeers         string `placeholder:"LIST" help:"Relays of other regions to which this node's relay sends changes directly: region=host:port[,host:port] each, separated by spaces. Default: changes go through MySQL alone."`
	RelayPeersListen   string `placeholder:"HOST:PORT" help:"Address that receives changes from those relays. Beyond loopback it needs mutual TLS. Default: none."`
	RelayPeersDomain   string `placeholder:"NAME" help:"Domain of the names in relays' certificates: the certificate of region eu names eu.NAME. Default: none, it names eu."`
	RelayPeersCertFile string `placeholder:"PATH" help:"This region's certificate, shown to relays of other regions. Read again when it changes."`
	RelayPeersKeyFile  string `placeholder:"PATH" help:"Key of that certificate."`
	RelayPeersCAFile   string `name:"relay-peers-ca-file" placeholder:"PATH" help:"CAs of other regions' certificates, in PEM."`

	RLSRules     string `name:"rls-rules" placeholder:"PATH" help:"Rules for Envoy's rate limit service: a file, or a folder of *.yaml, as envoyproxy/ratelimit has them. Read again when they change."`
	RLSWorkspace string `name:"rls-workspace" default:"envoy" help:"Workspace of Envoy's keys; each domain is a namespace in it."`
	RLSHeaders   string `name:"rls-headers" default:"denied" enum:"denied,always,never" help:"Answers to which Envoy adds RateLimit fields: denied, always or never."`
	RLSMetadata  bool   `name:"rls-metadata" default:"true" help:"Add the limit that mattered most to answers, as dynamic_metadata for Envoy's access log."`

	V2Workspace string `name:"v2-workspace" env:"WEIR_V2_WORKSPACE" default:"default" help:"Workspace of the keys of the HTTP routes below /v2."`
	V2Overrides bool   `name:"v2-overrides" env:"WEIR_V2_OVERRIDES" help:"Let callers of those routes change overrides: in MySQL, whose user then needs more grants, or in memory on a node without Redis and MySQL."`

	DrainDelay   time.Duration `default:"0s" help:"How long a stopping node still serves while it is unready, so that load balancers notice (0s to 10m)."`
	DrainTimeout time.Duration `default:"20s" help:"How long a stopping node then takes at most to finish calls and send its last counts (100ms to 10m)."`

	LogLevel string `default:"info" enum:"debug,info,warn,error" help:"Least severe log lines to write: debug, info, warn or error."`

	InsecurePublic bool `help:"Allow addresses that other machines can reach without authentication."`

	callsPublic bool `kong:"-"` // InsecurePublic only for the ports for calls: see Program
}

// allowedHosts are its names.
func (c Config) allowedHosts() []string {
	return strings.FieldsFunc(c.AllowedHosts, func(r rune) bool { return r == ',' || r == ' ' })
}

// embedded reports whether the node has no stores: one process, in memory.
func (c Config) embedded() bool { return c.RedisURL == "" && c.MySQLDSN == "" }

// readSecretFiles sets the secrets that are in files.
func (c *Config) readSecretFiles() error {
	for _, secret := range []struct {
		name  string
		path  string
		value *string
		read  func(field, path string) (string, error)
	}{
		{"redis-url", c.RedisURLFile, &c.RedisURL, strict.File},
		{"mysql-dsn", c.MySQLDSNFile, &c.MySQLDSN, strict.Line},
	} {
		if secret.path == "" {
			continue
		}
		if *secret.value != "" {
			return fmt.Errorf("%s and %s-file are both set: set only one", secret.name, secret.name)
		}
		content, err := secret.read(secret.name+"-file", secret.path)
		if err != nil {
			return err
		}
		*secret.value = strings.TrimSpace(content)
	}
	return nil
}

// check returns all errors of the configuration, one per line, with the flag's name. No line contains a secret. (With
// the name Validate, kong would call it before the secrets are read.)
func (c Config) check() error {
	var p problems
	c.checkListeners(&p)
	c.checkNames(&p)
	c.checkStores(&p)
	c.checkPeers(&p)
	c.checkBounds(&p)
	if err := hosts.Check(c.allowedHosts()); err != nil {
		p.add("allowed-hosts: %w", err)
	}
	return errors.Join(p...)
}

// problems are the errors that check has found.
type problems []error

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

func (c Config) checkListeners(p *problems) {
	for _, l := range []struct{ name, address string }{{"listen", c.Listen}, {"grpc-listen", c.GRPCListen},
		{"admin-listen", c.AdminListen}} {
		if l.name == "grpc-listen" && l.address == "" {
			continue
		}
		named := c.TokensFile != "" || (c.TLSClientCAFile != "" || c.callsPublic) && l.name != "admin-listen"
		if err := strict.ListenAddress(l.name, l.address); err != nil {
			p.add("%w", err)
		} else if err := c.checkAddress(l.address, named); err != nil {
			p.add("%s is %q: %w", l.name, l.address, err)
		}
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		p.add("tls-cert-file and tls-key-file: set both, or neither")
	}
	if c.TLSClientCAFile != "" && c.TLSCertFile == "" {
		p.add("tls-client-ca-file needs tls-cert-file and tls-key-file")
	}
}

func (c Config) checkNames(p *problems) {
	if c.Region == "" && !c.embedded() {
		p.add("region is empty: set WEIR_REGION (or --region) to the name of this node's region; it is required with " +
			"Redis or MySQL, because counts are shared under it")
	}
	if err := store.CheckRegion(c.Region); c.Region != "" && err != nil {
		p.add("%v", err)
	} else if err := strict.Name("region", c.Region, store.RegionBytesMax); c.Region != "" && err != nil {
		p.add("%w", err)
	}
	for _, n := range []struct {
		name, value string
		required    bool // by itself; the others have a rule of their own, or a default
		bytesMax    int
	}{
		{"node-id", c.NodeID, false, nodeIDBytesMax},
		{"rls-workspace", c.RLSWorkspace, true, window.WorkspaceBytesMax},
		{"v2-workspace", c.V2Workspace, true, window.WorkspaceBytesMax},
	} {
		if err := strict.Name(n.name, n.value, n.bytesMax); err != nil && (n.required || n.value != "") {
			p.add("%w", err)
		}
	}
}

// checkStores checks the stores' addresses, and calls none.
func (c Config) checkStores(p *problems) {
	for _, s := range []struct {
		name, value string
		check       func(string) error
	}{{"redis-url", c.RedisURL, checkRedisURL}, {"mysql-dsn", c.MySQLDSN, checkMySQLDSN}} {
		if s.value == "" {
			continue
		}
		if err := s.check(s.value); err != nil {
			p.add("%s %w", s.name, err)
		}
	}
	c.checkSettingsFile(p)
	if c.V2Overrides && c.MySQLDSN == "" && !c.embedded() {
		p.add("v2-overrides needs mysql-dsn: otherwise the nodes of a region could not share the overrides")
	}
}

// checkSettingsFile refuses a second source of settings.
func (c Config) checkSettingsFile(p *problems) {
	for _, other := range []struct {
		name string
		set  bool
		why  string
	}{
		{"redis-url", c.RedisURL != "",
			"nodes that share a Redis get the same settings through it, and files could differ"},
		{"mysql-dsn", c.MySQLDSN != "", "a node with MySQL has the fleet's settings (weirctl apply stores a file there)"},
		{"v2-overrides", c.V2Overrides, "changes of callers would not be in the file"},
	} {
		if c.SettingsFile != "" && other.set {
			p.add("settings-file and %s are both set: set only one; %s", other.name, other.why)
		}
	}
}

func (c Config) checkBounds(p *problems) {
	for _, n := range []struct {
		name       string
		value, max int
	}{
		{"entries-max", c.EntriesMax, entriesMaxMax},
		{"new-keys-max", c.NewKeysMax, newKeysMaxMax},
		{"max-in-flight", c.MaxInFlight, inFlightMaxMax},
		{"connections-max", c.ConnectionsMax, connectionsMaxMax},
	} {
		if n.value < 1 || n.value > n.max {
			p.add("%s is %d (1 to %d)", n.name, n.value, n.max)
		}
	}
	for _, d := range []struct {
		name            string
		value, min, max time.Duration
	}{
		{"read-timeout", c.ReadTimeout, time.Millisecond, 10 * time.Second},
		{"drain-delay", c.DrainDelay, 0, 10 * time.Minute},
		{"drain-timeout", c.DrainTimeout, 100 * time.Millisecond, 10 * time.Minute},
	} {
		if d.value < d.min || d.value > d.max {
			p.add("%s is %v (%v to %v)", d.name, d.value, d.min, d.max)
		}
	}
}

const (
	nodeIDBytesMax = 64
	entriesMaxMax  = 100_000_000
	inFlightMaxMax = 1_000_000
	newKeysMaxMax  = 1_000_000

	connectionsMaxMax = 1_000_000
)

// checkAddress refuses an address that other machines can reach, unless callers have to
// show a token or a certificate (named).
func (c Config) checkAddress(address string, named bool) error {
	if named || c.InsecurePublic || hosts.Loopback(address) {
		return nil
	}
	return errors.New("other machines can reach it, and there is no authentication: any client that connects can spend " +
		"any budget or read this process's profiles. Set tokens-file (or tls-client-ca-file, for calls alone), use " +
		"127.0.0.1, or --insecure-public if only your own services can connect")
}
