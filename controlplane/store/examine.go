package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/shared/mysqlclient"
)

// needed maps each table to the privileges that the control plane needs, the grants of schema/README.md.
var needed = map[string]string{
	"ratelimit_window_counts":    "SELECT,DELETE",
	"ratelimit_nodes":            "SELECT,UPDATE,DELETE",
	"ratelimit_usage":            "SELECT,DELETE",
	"ratelimit_usage_reports":    "SELECT,DELETE",
	"ratelimit_tuning":           "SELECT,INSERT",
	"ratelimit_trials":           "SELECT,INSERT,UPDATE",
	"ratelimit_rollouts":         "SELECT,INSERT,UPDATE",
	"ratelimit_namespaces":       "SELECT,INSERT,UPDATE,DELETE",
	"ratelimit_overrides":        "SELECT,INSERT,UPDATE,DELETE",
	"ratelimit_resets":           "SELECT,INSERT,UPDATE,DELETE",
	"ratelimit_settings_version": "SELECT,INSERT,UPDATE",
	"ratelimit_tokens":           "SELECT,INSERT,UPDATE",
	"ratelimit_audit":            "SELECT,INSERT",
	"ratelimit_audit_chain":      "SELECT,INSERT,UPDATE",
	"ratelimit_blocklist":        "SELECT,INSERT,UPDATE,DELETE",
	"ratelimit_retirements":      "SELECT,INSERT,UPDATE",
	"ratelimit_job_states":       "SELECT,INSERT,UPDATE",
	"ratelimit_schema_version":   "SELECT",
}

// The differences between the database's clock and this machine's at which a check warns or fails.
const (
	skewWarn = time.Second
	skewFail = 10 * time.Second
)

// SchemaCheck has the version of the tables that this build needs, and the function that reads their present version.
type SchemaCheck struct {
	Version func(context.Context, *sql.DB) (int64, error)
	Latest  int64
	// Migrates means that this process creates and upgrades the tables, so it needs further privileges in its database.
	Migrates bool
}

// Ready returns nil if the tables have the version of this build or a newer version, which keeps everything that this
// build needs.
func (s *Store) Ready(ctx context.Context, schema SchemaCheck) error {
	version, err := schema.Version(ctx, s.db)
	if err != nil {
		return explain(err)
	}
	if version < schema.Latest {
		return fmt.Errorf("%w: the tables have version %d, this build needs %d: weir-control creates or upgrades them at "+
			"startup (its log says what fails), or, with --no-migrate, your own migration step does",
			controlplane.ErrUnavailable, version, schema.Latest)
	}
	return nil
}

// Examine returns an examiner that checks how MySQL is set up for the control plane. It changes nothing.
func (s *Store) Examine(schema SchemaCheck) watch.Examiner {
	return func(ctx context.Context) []watch.Check {
		var version, user string
		if err := s.db.QueryRowContext(ctx, `SELECT VERSION(), CURRENT_USER()`).Scan(&version, &user); err != nil {
			return []watch.Check{watch.Fail("reachable", explain(err).Error(),
				"Start MySQL, let this machine reach it, or correct WEIR_MYSQL_DSN.")}
		}
		checks := []watch.Check{watch.Pass("reachable", "as "+user), versionCheck(version)}
		for _, examine := range []func(context.Context) ([]watch.Check, error){
			func(ctx context.Context) ([]watch.Check, error) { return s.examineSchema(ctx, schema) },
			func(ctx context.Context) ([]watch.Check, error) { return s.examineGrants(ctx, schema.Migrates) },
			s.examinePartitions, s.examineVariables, s.examineClock,
		} {
			found, err := examine(ctx)
			if err != nil {
				found = []watch.Check{watch.Fail("answers", explain(err).Error(), "See the log of MySQL.")}
			}
			checks = append(checks, found...)
		}
		return checks
	}
}

// versionCheck checks the result of VERSION(), for example "8.0.36-log" or "10.11.19-MariaDB-deb12".
func versionCheck(text string) watch.Check {
	product, least := "MySQL", [3]int{8, 0, 19}
	if strings.Contains(text, "TiDB") { // it begins with the version of the MySQL that TiDB emulates
		return watch.Pass("version", fmt.Sprintf("%.80s", text))
	}
	if strings.Contains(strings.ToLower(text), "mariadb") {
		product, least = "MariaDB", [3]int{10, 6, 0}
	}
	have, ok := readVersion(text)
	if !ok {
		return watch.Warn("version", fmt.Sprintf("%.80q is not a known version", text),
			"Weir needs MySQL 8.0.19 or MariaDB 10.6, or a server compatible with one of them.")
	}
	if slices.Compare(have[:], least[:]) < 0 {
		return watch.Fail("version", fmt.Sprintf("%s %.80s", product, text),
			fmt.Sprintf("Upgrade to %s %d.%d.%d or newer.", product, least[0], least[1], least[2]))
	}
	return watch.Pass("version", fmt.Sprintf("%s %.80s", product, text))
}

// readVersion parses the three numbers at the beginning of a version.
func readVersion(text string) (v [3]int, ok bool) {
	number, _, _ := strings.Cut(text, "-")
	parts := strings.Split(number, ".")
	if len(parts) < 3 {
		return v, false
	}
	for i := range v {
		n, err := strconv.Atoi(parts[i])
		if err != nil || n < 0 {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

func (s *Store) examineSchema(ctx context.Context, schema SchemaCheck) ([]watch.Check, error) {
	version, err := schema.Version(ctx, s.db)
	if err != nil {
		return []watch.Check{watch.Fail("schema", err.Error(),
			"Grant SELECT on ratelimit_schema_version, see schema/README.md.")}, nil
	}
	what := fmt.Sprintf("version %d, this build has %d", version, schema.Latest)
	switch {
	case version < schema.Latest:
		return []watch.Check{watch.Fail("schema", what, "Let weir-control migrate (do not set --no-migrate), or run the "+
			"migrations as a user with the grants.")}, nil
	case version > schema.Latest:
		return []watch.Check{watch.Warn("schema", what, "A newer build has migrated: upgrade this weir-control.")}, nil
	}
	return []watch.Check{watch.Pass("schema", what)}, nil
}

func (s *Store) examineVariables(ctx context.Context) (checks []watch.Check, err error) {
	rows, err := s.db.QueryContext(ctx, `SHOW SESSION VARIABLES WHERE Variable_name IN ('sql_mode', 'autocommit',
		'transaction_isolation', 'tx_isolation', 'read_only', 'innodb_read_only', 'transaction_read_only', 'tx_read_only',
		'time_zone', 'max_allowed_packet')`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	values := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		values[name] = value
	}
	return variableChecks(values), rows.Err()
}

// variableChecks checks the variables of a session. If the server does not show a variable, the check is a warning.
func variableChecks(values map[string]string) (checks []watch.Check) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		checks = append(checks, variableCheck(name, values[name]))
	}
	for _, name := range []string{"sql_mode", "autocommit", "read_only", "time_zone", "max_allowed_packet"} {
		if _, shown := values[name]; !shown {
			checks = append(checks, watch.Warn(name, "the server does not show it: it is not checked", proxyDo))
		}
	}
	if values["transaction_isolation"]+values["tx_isolation"] == "" {
		checks = append(checks, watch.Warn("isolation", "the server does not show it: it is not checked", proxyDo))
	}
	return checks
}

const proxyDo = "See whether a proxy before MySQL drops session settings: each connection of Weir makes them."

// variableCheck checks a session variable, for example sql_mode. Weir sets most variables in each session, so the
// server's defaults don't matter.
func variableCheck(name, value string) watch.Check {
	switch name {
	case "sql_mode":
		if !strings.Contains(value, "STRICT_TRANS_TABLES") && !strings.Contains(value, "STRICT_ALL_TABLES") {
			return watch.Warn(name, fmt.Sprintf("%.200q is not strict: values that do not fit are truncated without an error",
				value), proxyDo)
		}
	case "autocommit":
		if value != "ON" && value != "1" {
			return watch.Fail(name, "off: writes are not committed, and reads stay at their first snapshot", proxyDo)
		}
	case "transaction_isolation", "tx_isolation":
		if value != "REPEATABLE-READ" && value != "READ-COMMITTED" {
			return watch.Warn("isolation",
				value+": the writes of nodes block each other, or reads see uncommitted rows", proxyDo)
		}
		name = "isolation"
	case "read_only", "innodb_read_only", "transaction_read_only", "tx_read_only":
		if value != "OFF" && value != "0" {
			return watch.Fail(name, "the server takes no writes", "Let WEIR_MYSQL_DSN name the primary.")
		}
	case "time_zone":
		if value != "+00:00" {
			return watch.Warn(name, value+": Weir set +00:00, so something changed the session", proxyDo)
		}
	case "max_allowed_packet":
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < mysqlclient.PacketBytesMin {
			return watch.Fail(name, fmt.Sprintf("%.40s bytes, want at least %d: a relay refuses to start with less", value,
				mysqlclient.PacketBytesMin), "Raise max_allowed_packet on the server.")
		}
	}
	return watch.Pass(name, value)
}

func (s *Store) examineClock(ctx context.Context) ([]watch.Check, error) {
	before := time.Now()
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	took := time.Since(before)
	return []watch.Check{clockCheck(now.Sub(before.Add(took/2)), took)}, nil
}

// clockCheck checks a difference that was measured with an uncertainty of half of took.
func clockCheck(skew, took time.Duration) watch.Check {
	what := fmt.Sprintf("%v from this machine's", skew.Round(time.Millisecond))
	const do = "Let NTP run on both machines: rows expire by the database's clock, windows begin by the nodes'."
	switch off := skew.Abs() - took/2; {
	case off >= skewFail:
		return watch.Fail("clock", what, do)
	case off >= skewWarn:
		return watch.Warn("clock", what, do)
	}
	return watch.Pass("clock", what)
}
