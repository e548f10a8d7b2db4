package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/api"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/shared/hosts"
	"github.com/weirhq/weir/shared/mysqldsn"
	"github.com/weirhq/weir/shared/strict"
)

// restateNodesMax bounds how many nodes of a Restate cluster may be configured, because a call without an answer tries
// each.
const restateNodesMax = 9

// config has all settings: by flag, by environment (WEIR_ and the flag's name in capitals), by a YAML file whose keys
// are the flags' names, in that order of precedence. The DSN is not here. It has no flag, so that no list of processes
// shows it, and no key in the file, so that the file can be shown to anybody.
type config struct {
	Config      kong.ConfigFlag  `placeholder:"FILE" help:"YAML file with further settings, named as the flags are. Unknown keys are errors."`
	PrintConfig bool             `env:"-" help:"Print the settings in force as YAML, secrets masked, and exit."`
	Version     kong.VersionFlag `env:"-" help:"Print the version and exit."`

	APIListen         string `name:"api-listen" default:"127.0.0.1:7080" help:"Address that serves operators' calls, /healthz, /readyz and /metrics. An address other than loopback requires --api-auth=token."`
	APIAuth           string `name:"api-auth" default:"none" enum:"none,token" help:"How callers of the API authenticate: none, or token, which requires a bearer token (weirctl token create)."`
	APIAdminTokenFile string `name:"api-admin-token-file" placeholder:"FILE" help:"File with the first admin token; use it to create the other tokens."`
	APITLSCert        string `name:"api-tls-cert" placeholder:"FILE" help:"PEM file with the API's certificate and its chain; the API then serves HTTPS only. Read again when it changes."`
	APITLSKey         string `name:"api-tls-key" placeholder:"FILE" help:"PEM file with the key of api-tls-cert."`
	APIClientCA       string `name:"api-client-ca" placeholder:"FILE" help:"PEM file with the CAs of callers' certificates. Callers must then present a certificate, in addition to whatever api-auth requires."`

	APIClientRoles map[string]string `name:"api-client-roles" placeholder:"SUBJECT=ROLE;…" help:"Role (viewer, operator or admin) by the subject of a caller's certificate: its URI (spiffe://…), or else its common name. Such a caller needs no token. The audit log and approvals name the caller by the subject."`

	APIAllowedHosts []string `name:"api-allowed-hosts" placeholder:"NAME" help:"Host names, in addition to loopback names, that requests to a loopback api-listen may use, such as that of a proxy on this machine. They also hold for handlers-listen without restate-identity-key. HTTP/1.x without TLS only."`

	APITrustedProxies []string `name:"api-trusted-proxies" placeholder:"ADDRESS" help:"Addresses or networks of proxies in front of the console. From these proxies alone it reads X-Forwarded-For, the client's address at sign-in, and X-Forwarded-Proto, which shows that the client uses TLS."`

	Console bool `default:"true" negatable:"" help:"Serve the web console at /console/ of api-listen. It requires a token if the API does."`

	HandlersListen string `default:"127.0.0.1:9080" help:"Address on which Restate calls the durable handlers."`
	HandlersURL    string `name:"handlers-url" placeholder:"URL" help:"URL at which Restate reaches the handlers. Default: http:// and handlers-listen."`

	RestateIngress     []string `name:"restate-ingress" placeholder:"URL" default:"http://127.0.0.1:8080" help:"URL of Restate's ingress; for a cluster, those of all its nodes (1 to 9). If one does not answer, the next is tried."`
	RestateAdmin       []string `name:"restate-admin" placeholder:"URL" default:"http://127.0.0.1:9070" help:"URL of Restate's admin API; for a cluster, those of all its nodes (1 to 9)."`
	RestateIdentityKey string   `name:"restate-identity-key" placeholder:"publickeyv1_…" help:"Public key that Restate's requests must be signed with; weir-control identity-key --out FILE makes a pair. Required where handlers-listen is not loopback."`

	OrderKeyFile string `name:"order-key-file" placeholder:"FILE" help:"File with the keys that sign weir-control's orders to its handlers, one a line (1 to 8; openssl rand -hex 32): the first signs, all are accepted. Read again when it changes. Default: a key that only this process has. Required for more than one weir-control."`

	RedisURL          map[string]string `name:"redis-url" placeholder:"REGION=URL;…" help:"URL of each region's Redis without a password, redis://host:port. Only weirctl doctor uses it."`
	RedisPasswordFile string            `name:"redis-password-file" placeholder:"FILE" help:"File with the password of the servers in redis-url."`

	MySQLDSNFile string `name:"mysql-dsn-file" placeholder:"FILE" help:"File that holds the MySQL DSN, user:password@tcp(host:port)/database. The environment variable WEIR_MYSQL_DSN takes precedence."`
	Migrate      bool   `default:"true" negatable:"" help:"Create and upgrade the tables at startup."`

	CleanupInterval  time.Duration `default:"1m" help:"Time between two cleanups of expired rows (1s to 1h)."`
	CleanupGrace     time.Duration `default:"1m" help:"How long an expired row is kept before a cleanup deletes it (0s to 168h)."`
	CleanupKeep      time.Duration `default:"0s" help:"How long the rows of a dropped partition are kept in a table of their own (1h to 168h; 0s: not at all)."`
	CleanupBatchRows int           `default:"5000" help:"Most rows of one DELETE (1 to 50000)."`
	CleanupBatches   int           `default:"200" help:"Most DELETEs of one cleanup (1 to 10000). If rows are left, the next cleanup starts immediately."`
	CleanupBatchSlow time.Duration `default:"500ms" help:"If a DELETE takes longer than this, the next one deletes half as many rows (1ms to 1m)."`
	CleanupRunTime   time.Duration `default:"30s" help:"Time spent in DELETEs after which a cleanup starts no further one (1s to 10m)."`

	WatchInterval time.Duration `default:"30s" help:"Time between two checks of the health of the fleet, MySQL and Restate (1s to 10m)."`

	NodeLiveWithin time.Duration `default:"30s" help:"A node without a heartbeat for longer is listed as not live (1s to 24h)."`
	NodeDeadAfter  time.Duration `default:"24h" help:"The row of a node without a heartbeat for longer is deleted (1m to 2160h)."`

	PrometheusURL string `name:"prometheus-url" placeholder:"URL" help:"Prometheus that evaluates the queries of rollouts' guardrails. Default: none."`

	DrainTimeout time.Duration `default:"25s" help:"How long a stopping weir-control waits for calls and steps to finish (0s to 10m)."`
	LogLevel     string        `default:"info" enum:"debug,info,warn,error" help:"One of ${enum}. Logs are JSON lines on stderr."`
}

// cleanup returns the part of the configuration that the cleanup validates itself.
func (c *config) cleanup() cleanup.Config {
	set := cleanup.DefaultConfig()
	set.Grace, set.Keep, set.NodeDeadAfter = c.CleanupGrace, c.CleanupKeep, c.NodeDeadAfter
	set.Limits = cleanup.SweepLimits{
		BatchRowsMax: c.CleanupBatchRows, BatchesMax: c.CleanupBatches,
		BatchSlow: c.CleanupBatchSlow, RunTimeMax: c.CleanupRunTime,
	}
	return set
}

// validate returns all faults of the configuration, each with its remedy.
func (c *config) validate() error {
	bad := []error{
		strict.ListenAddress("api-listen", c.APIListen),
		strict.ListenAddress("handlers-listen", c.HandlersListen),
		validURLs("restate-ingress", c.RestateIngress),
		validURLs("restate-admin", c.RestateAdmin),
		validSpan("cleanup-interval", c.CleanupInterval, time.Second, time.Hour),
		validSpan("watch-interval", c.WatchInterval, time.Second, 10*time.Minute),
		validSpan("node-live-within", c.NodeLiveWithin, time.Second, 24*time.Hour),
		validSpan("drain-timeout", c.DrainTimeout, 0, 10*time.Minute),
		c.cleanup().Validate(),
	}
	if _, err := trustedProxies(c.APITrustedProxies); err != nil {
		bad = append(bad, err)
	}
	if err := hosts.Check(c.APIAllowedHosts); err != nil {
		bad = append(bad, fmt.Errorf("api-allowed-hosts: %w", err))
	}
	if (c.APITLSCert == "") != (c.APITLSKey == "") {
		bad = append(bad, errors.New("api-tls-cert and api-tls-key go together: set both, or neither"))
	}
	if c.APIClientCA != "" && c.APITLSCert == "" {
		bad = append(bad, errors.New("api-client-ca needs api-tls-cert and api-tls-key: without TLS callers present no "+
			"certificate"))
	}
	if len(c.APIClientRoles) > 0 && (c.APIClientCA == "" || c.APIAuth != "token") {
		bad = append(bad, errors.New("api-client-roles needs api-client-ca, which verifies certificates, and api-auth=token "+
			"for callers whose certificate has no role"))
	}
	if err := api.ValidateSubjects(c.subjects()); err != nil {
		bad = append(bad, fmt.Errorf("api-client-roles: %w", err))
	}
	for region, url := range c.RedisURL {
		bad = append(bad, validRedisURL(region, url))
	}
	if c.PrometheusURL != "" {
		bad = append(bad, strict.URL("prometheus-url", c.PrometheusURL))
	}
	if c.HandlersURL != "" {
		bad = append(bad, strict.URL("handlers-url", c.HandlersURL))
	}
	if !hosts.Loopback(c.APIListen) && c.APIAuth == "none" {
		bad = append(bad, fmt.Errorf("api-listen %s is not a loopback address, and any client that reaches it could do "+
			"everything: set api-auth to token, or bind it to 127.0.0.1", c.APIListen))
	}
	if !hosts.Loopback(c.HandlersListen) {
		if c.RestateIdentityKey == "" {
			bad = append(bad, fmt.Errorf("handlers-listen %s is not a loopback address, and any client that reaches it could "+
				"run the handlers: set restate-identity-key, so that only your Restate can", c.HandlersListen))
		}
		if c.HandlersURL == "" {
			bad = append(bad, fmt.Errorf("handlers-url is required if handlers-listen is %s: it is the URL at which Restate "+
				"reaches the handlers", c.HandlersListen))
		}
	}
	return errors.Join(bad...)
}

// subjects returns the roles of callers by the subject of their certificate.
func (c *config) subjects() map[string]access.Role {
	subjects := make(map[string]access.Role, len(c.APIClientRoles))
	for subject, role := range c.APIClientRoles {
		subjects[subject] = access.Role(role)
	}
	return subjects
}

// dsn returns the MySQL DSN from the environment, or else from the file. An error names its source.
func (c *config) dsn() (string, error) {
	from, dsn := "WEIR_MYSQL_DSN", os.Getenv("WEIR_MYSQL_DSN")
	if dsn == "" {
		if c.MySQLDSNFile == "" {
			return "", errors.New("no MySQL is configured: set WEIR_MYSQL_DSN, or mysql-dsn-file to a file that holds the " +
				"DSN, user:password@tcp(host:port)/database")
		}
		text, err := strict.Line("mysql-dsn-file", c.MySQLDSNFile)
		if err != nil {
			return "", err
		}
		from, dsn = "mysql-dsn-file", strings.TrimSpace(text)
	}
	if _, err := mysqldsn.Parse(dsn); err != nil {
		return "", fmt.Errorf("%s: %w", from, err)
	}
	return dsn, nil
}

// adminToken returns the token in the file, or "" without a file.
func (c *config) adminToken() (string, error) {
	if c.APIAdminTokenFile == "" {
		return "", nil
	}
	text, err := strict.Line("api-admin-token-file", c.APIAdminTokenFile)
	if err != nil {
		return "", fmt.Errorf("%w (openssl rand -hex 32 makes a token)", err)
	}
	return strings.TrimSpace(text), nil
}

func validURLs(flag string, texts []string) error {
	if len(texts) < 1 || len(texts) > restateNodesMax {
		return fmt.Errorf("%s has %d URLs (1 to %d)", flag, len(texts), restateNodesMax)
	}
	for _, text := range texts {
		if err := strict.URL(flag, text); err != nil {
			return err
		}
	}
	return nil
}

func validSpan(flag string, d, least, most time.Duration) error {
	if d < least || d > most {
		return fmt.Errorf("%s is %v (%v to %v)", flag, d, least, most)
	}
	return nil
}
