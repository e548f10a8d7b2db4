package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	v1 "github.com/gubernator-io/gubernator/v2"
	"github.com/sirupsen/logrus"

	"github.com/weirhq/weir/shared/hosts"
	"github.com/weirhq/weir/shared/servertls"
	"github.com/weirhq/weir/shared/window"
)

// settings is gubernator's configuration, converted for a node.
type settings struct {
	flags         []string // weir-node's
	workspace     string
	probeListen   string
	connectionAge time.Duration
	tls           bool
	tlsVersionMin uint16
	level         slog.Level

	ignored []string // names of settings that have no effect
	alone   bool     // without Redis
	public  []string // addresses that others reach without authentication

	taken map[string]bool // names of settings that have an effect
}

// gubernator listens by default on whichever address the machine resolves "localhost" to. A node always listens on
// loopback.
const (
	grpcAddressDefault = "127.0.0.1:1051"
	httpAddressDefault = "127.0.0.1:1050"

	regionDefault    = "default"
	workspaceDefault = "default"

	connectionAgeSecondsMax = 366 * 24 * 60 * 60
)

// names are gubernator's of weir-node's flags.
var names = map[string]string{
	"listen":             "GUBER_HTTP_ADDRESS",
	"grpc-listen":        "GUBER_GRPC_ADDRESS",
	"region":             "GUBER_DATA_CENTER",
	"node-id":            "GUBER_INSTANCE_ID",
	"entries-max":        "GUBER_CACHE_SIZE",
	"tls-cert-file":      "GUBER_TLS_CERT",
	"tls-key-file":       "GUBER_TLS_KEY",
	"tls-client-ca-file": "GUBER_TLS_CLIENT_AUTH_CA_CERT",
}

// load reads the environment, and the file if a path is given, as gubernator does. The error has a line for each fault,
// with the name of the setting.
func load(path string, debug bool) (*settings, error) {
	daemon, err := read(path, debug)
	if err != nil {
		return nil, err
	}
	s := &settings{workspace: cmp.Or(os.Getenv("WEIR_WORKSPACE"), workspaceDefault), taken: make(map[string]bool)}
	s.takeNames(daemon)
	s.takeLogging()
	err = errors.Join(s.takeAddresses(daemon), s.takeTLS(daemon.TLS), s.checkWorkspace())
	s.ignored = s.untaken()
	s.alone = unset("WEIR_REDIS_URL") && unset("WEIR_REDIS_URL_FILE")
	return s, err
}

// read runs gubernator's own reading of its configuration. gubernator logs some faults and skips the setting: read
// returns these faults as errors.
func read(path string, debug bool) (v1.DaemonConfig, error) {
	var file io.Reader
	if path != "" {
		f, err := os.Open(path)
		if err != nil {
			return v1.DaemonConfig{}, fmt.Errorf("-config: %w", err)
		}
		defer f.Close()
		file = f
	}
	v1.DebugEnabled = debug
	defer withoutLookup()()
	faults := new(faults)
	logger := logrus.New()
	logger.SetOutput(io.Discard) // with debug it holds every secret
	logger.AddHook(faults)
	daemon, err := v1.SetupDaemonConfig(logger, file)
	if err != nil && strings.Contains(err.Error(), "invalid log level") {
		err = fmt.Errorf("GUBER_LOG_LEVEL: %w", err)
	}
	return daemon, errors.Join(append(faults.found, err)...)
}

// faults collects the errors that gubernator logs about settings.
type faults struct{ found []error }

// Levels implements logrus.Hook.
func (*faults) Levels() []logrus.Level { return []logrus.Level{logrus.ErrorLevel} }

// Fire implements logrus.Hook.
func (f *faults) Fire(e *logrus.Entry) error {
	fault := errors.New(e.Message)
	if err, ok := e.Data[logrus.ErrorKey].(error); ok {
		fault = fmt.Errorf("%s: %w", e.Message, err)
	}
	f.found = append(f.found, fault)
	return nil
}

// withoutLookup stops gubernator from looking up this machine's name, until the returned function is called. gubernator
// would use it for the address that it advertises to peers, and a node has no peers.
func withoutLookup() (end func()) {
	const setting = "GUBER_ADVERTISE_ADDRESS"
	if os.Getenv(setting) != "" {
		return func() {}
	}
	_ = os.Setenv(setting, grpcAddressDefault)
	return func() {
		if os.Getenv(setting) == grpcAddressDefault {
			_ = os.Unsetenv(setting)
		}
	}
}

// take reports whether a setting is set, and marks the setting as one that has an effect.
func (s *settings) take(setting string) bool {
	s.taken[setting] = true
	return os.Getenv(setting) != ""
}

// untaken returns the settings that are set and have no effect.
func (s *settings) untaken() (ignored []string) {
	for _, variable := range os.Environ() {
		setting, value, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(setting, "GUBER_") && value != "" && !s.taken[setting] {
			ignored = append(ignored, setting)
		}
	}
	slices.Sort(ignored)
	return ignored
}

func (s *settings) flag(name string, value any) {
	s.flags = append(s.flags, fmt.Sprintf("--%s=%v", name, value))
}

// unset reports whether weir-node's configuration leaves a flag to its default, as far as environment variables show.
func unset(variable string) bool { return os.Getenv(variable) == "" && os.Getenv("WEIR_CONFIG") == "" }

func (s *settings) takeAddresses(daemon v1.DaemonConfig) error {
	grpcAddress, httpAddress := grpcAddressDefault, httpAddressDefault
	if s.take("GUBER_GRPC_ADDRESS") {
		grpcAddress = daemon.GRPCListenAddress
	}
	if s.take("GUBER_HTTP_ADDRESS") {
		httpAddress = daemon.HTTPListenAddress
	}
	s.flag("grpc-listen", grpcAddress)
	s.flag("listen", httpAddress)
	if unset("WEIR_ADMIN_LISTEN") {
		s.flag("admin-listen", "127.0.0.1:0") // several daemons on a machine differ in the two above alone
	}
	named := !unset("WEIR_TOKENS_FILE") || daemon.TLS != nil && daemon.TLS.ClientAuth != tls.NoClientCert
	for _, address := range []string{grpcAddress, httpAddress} {
		if !named && !hosts.Loopback(address) {
			s.public = append(s.public, address)
		}
	}
	n := daemon.GRPCMaxConnectionAgeSeconds
	if s.take("GUBER_GRPC_MAX_CONN_AGE_SEC") && (n < 0 || n > connectionAgeSecondsMax) {
		return fmt.Errorf("GUBER_GRPC_MAX_CONN_AGE_SEC is %d (0 to %d)", n, connectionAgeSecondsMax)
	}
	s.connectionAge = time.Duration(n) * time.Second
	return nil
}

// takeTLS rejects TLS settings that a node does not support and without which it would be unsafe.
func (s *settings) takeTLS(config *v1.TLSConfig) error {
	if config == nil {
		return nil
	}
	for _, setting := range []string{"GUBER_TLS_CERT", "GUBER_TLS_KEY", "GUBER_TLS_CLIENT_AUTH", "GUBER_TLS_AUTO"} {
		s.take(setting)
	}
	if config.AutoTLS {
		return errors.New("GUBER_TLS_AUTO is set: a node makes no certificates of its own; set GUBER_TLS_CERT and " +
			"GUBER_TLS_KEY")
	}
	if config.CertFile == "" || config.KeyFile == "" {
		return errors.New("GUBER_TLS_CERT and GUBER_TLS_KEY: set both, or no GUBER_TLS_ variable at all, not even to nothing")
	}
	authorities, err := s.takeClientAuth(config)
	if err != nil {
		return err
	}
	if _, err := servertls.Open(config.CertFile, config.KeyFile, authorities); err != nil {
		return fmt.Errorf("GUBER_TLS_CERT, GUBER_TLS_KEY or the authorities: %w", err)
	}
	s.flag("tls-cert-file", config.CertFile)
	s.flag("tls-key-file", config.KeyFile)
	if authorities != "" {
		s.flag("tls-client-ca-file", authorities)
	}
	if config.MinVersion >= tls.VersionTLS12 {
		s.take("GUBER_TLS_MIN_VERSION")
	}
	s.tls, s.tlsVersionMin = true, config.MinVersion
	if s.take("GUBER_STATUS_HTTP_ADDRESS") {
		s.probeListen = os.Getenv("GUBER_STATUS_HTTP_ADDRESS")
	}
	return nil
}

// takeClientAuth returns the file of callers' authorities; "" where callers need no certificate.
func (s *settings) takeClientAuth(config *v1.TLSConfig) (authorities string, err error) {
	switch config.ClientAuth {
	case tls.NoClientCert:
		return "", nil
	case tls.RequireAndVerifyClientCert:
	default:
		return "", fmt.Errorf("GUBER_TLS_CLIENT_AUTH is %q: a node either requires and verifies certificates of all callers "+
			"(require-and-verify) or requires none", os.Getenv("GUBER_TLS_CLIENT_AUTH"))
	}
	if s.take("GUBER_TLS_CLIENT_AUTH_CA_CERT") {
		return config.ClientAuthCaFile, nil
	}
	if s.take("GUBER_TLS_CA") {
		return config.CaFile, nil
	}
	return "", errors.New("GUBER_TLS_CLIENT_AUTH needs GUBER_TLS_CLIENT_AUTH_CA_CERT or GUBER_TLS_CA")
}

func (s *settings) takeNames(daemon v1.DaemonConfig) {
	switch {
	case s.take("GUBER_DATA_CENTER"):
		s.flag("region", daemon.DataCenter)
	case unset("WEIR_REGION"):
		s.flag("region", regionDefault)
	}
	if s.take("GUBER_INSTANCE_ID") {
		s.flag("node-id", daemon.InstanceID)
	}
	if s.take("GUBER_CACHE_SIZE") {
		s.flag("entries-max", daemon.CacheSize)
	}
}

func (s *settings) checkWorkspace() error {
	if n := len(s.workspace); n > window.WorkspaceBytesMax {
		return fmt.Errorf("WEIR_WORKSPACE is %d bytes long (1 to %d)", n, window.WorkspaceBytesMax)
	}
	return nil
}

// takeLogging reads a level that gubernator has checked.
func (s *settings) takeLogging() {
	s.take("GUBER_DEBUG")
	if os.Getenv("GUBER_LOG_FORMAT") == "json" {
		s.take("GUBER_LOG_FORMAT")
	}
	level := ""
	if s.take("GUBER_LOG_LEVEL") {
		level = levelOf(os.Getenv("GUBER_LOG_LEVEL"))
	}
	if v1.DebugEnabled {
		level = "debug"
	}
	if level != "" {
		s.flag("log-level", level)
	}
	_ = s.level.UnmarshalText([]byte(cmp.Or(level, os.Getenv("WEIR_LOG_LEVEL"), "info"))) // weir-node rejects bad levels
}

// levelOf returns the level of slog that writes no more than that of logrus.
func levelOf(text string) string {
	level, _ := logrus.ParseLevel(text)
	switch {
	case level <= logrus.ErrorLevel:
		return "error"
	case level == logrus.WarnLevel:
		return "warn"
	case level == logrus.InfoLevel:
		return "info"
	}
	return "debug"
}
