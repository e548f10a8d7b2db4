package dataplane_test

import (
	"iter"
	"maps"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane/internal/cell"
)

// The packages that the library must not link, and the reasons. An embedder links everything that it imports.
var forbidden = map[string]string{
	"github.com/weirhq/weir/controlplane":   "nodes do not know who operates them",
	"github.com/weirhq/weir/restate":        "durable work runs outside the request path",
	"github.com/weirhq/weir/deploy":         "a library does not know where it runs",
	"github.com/weirhq/weir/dataplane/":     "the library is the bottom of this tree: stores and servers come in from outside",
	"github.com/weirhq/weir/shared/gen":     "no wire and no SQL in the decision",
	"github.com/weirhq/weir/shared/servers": "no processes are started by a library",
	"github.com/restatedev/":                "durable work runs outside the request path",
	"github.com/tetratelabs/wazero":         "no WebAssembly runtime in an API node",
	"github.com/redis/":                     "comes in through redisorigin only",
	"github.com/go-sql-driver/":             "comes in through mysqlcounts only",
	"database/sql":                          "comes in through mysqlcounts only",
	"connectrpc.com/":                       "the node's, not the library's",
	"google.golang.org/grpc":                "the node's, not the library's",
	"github.com/prometheus/":                "comes in through metrics only",
	"go.yaml.in/":                           "documents of settings are read by settingsfile only",
	"net/http/pprof":                        "registers handlers behind an embedder's back",
}

const library = "github.com/weirhq/weir/dataplane"

// own are the packages below dataplane/ that the library may link.
var own = append([]string{library + "/store", library + "/internal/cell", library + "/internal/level",
	library + "/internal/held", library + "/internal/holds", library + "/internal/slots", library + "/internal/leases", library + "/internal/permits",
	library + "/internal/denied", library + "/internal/census", library + "/internal/epochs", library + "/internal/collect",
	library + "/internal/queue", library + "/internal/latency", library + "/internal/outbox", library + "/internal/resend",
	library + "/internal/rules", library + "/internal/evidence", library + "/internal/usage"}, leaves...)

// leaves are packages that import no other package of this module.
var leaves = []string{
	library + "/internal/breaker", library + "/internal/brief", library + "/internal/clock", library + "/internal/histogram",
	library + "/internal/loop", library + "/internal/topk", library + "/internal/fair", library + "/internal/turns",
}

// The library may link the standard library, shared, and a small library without dependencies.
var allowed = []string{
	"github.com/weirhq/weir/dataplane", "github.com/weirhq/weir/shared/",
	"github.com/sony/gobreaker", // 300 lines without dependencies
	"golang.org/x/sys", "vendor/golang.org/",
}

// allowedInRelays adds the Prometheus client with its own dependencies.
var allowedInRelays = append([]string{"github.com/prometheus/", "github.com/beorn7/perks", "github.com/cespare/xxhash",
	"github.com/munnerz/goautoneg", "google.golang.org/protobuf"}, allowed...)

// Implementations of the two layers may depend only on their contracts.
var implementers = []string{"./store", "./memstore", "./redisorigin", "./mysqlcounts", "./storetest",
	"./storetest/counttest", "./guides/mapstore", "./settingsfile"}

func TestDependencyRulesOfTheLibrary(t *testing.T) {
	deps := dependencies(t, ".")
	for _, broken := range breaches(deps) {
		t.Error(broken)
	}
	for _, dep := range deps {
		if strings.Contains(strings.SplitN(dep, "/", 2)[0], ".") && !hasPrefix(dep, allowed) {
			t.Errorf("depends on %s, which no rule allows", dep)
		}
	}
}

func TestDependencyRulesOfStores(t *testing.T) {
	for _, pkg := range implementers {
		if slices.Contains(dependencies(t, pkg), library) {
			t.Errorf("%s links the limiter; the contracts are in package store", pkg)
		}
	}
}

// A relay may depend on the stores' contracts, but neither on the limiter nor on an implementation.
func TestDependencyRulesOfTheRelay(t *testing.T) {
	const ours = "github.com/weirhq/weir/"
	may := []string{library + "/relay", library + "/store", library + "/internal/clock", library + "/internal/loop"}
	for _, dep := range dependencies(t, "./relay") {
		if strings.HasPrefix(dep, ours) && !slices.Contains(may, dep) && !strings.HasPrefix(dep, ours+"shared/") {
			t.Errorf("the relay links %s", dep)
		}
		if strings.Contains(strings.SplitN(dep, "/", 2)[0], ".") && !hasPrefix(dep, allowedInRelays) {
			t.Errorf("the relay links %s, which no rule allows", dep)
		}
	}
}

// The transport of rows between relays may depend on the rows and the wire, but not on a relay: the relay is passed
// to it.
func TestDependencyRulesOfThePeers(t *testing.T) {
	may := []string{library + "/relay/peers", library + "/store", library + "/internal/loop"}
	for _, dep := range dependencies(t, "./relay/peers") {
		if strings.HasPrefix(dep, library) && !slices.Contains(may, dep) {
			t.Errorf("package peers links %s", dep)
		}
	}
}

// The packages of this module that each internal package may link; a leaf may link none.
var inside = map[string][]string{
	library + "/internal/cell": append([]string{"github.com/weirhq/weir/shared/window", library + "/internal/level", library + "/store",
		"github.com/weirhq/weir/shared/estimate", "github.com/weirhq/weir/shared/strict",
		"github.com/weirhq/weir/shared/heartbeat"}, leaves...),
	library + "/internal/held":    {library + "/store", library + "/internal/fair", "github.com/weirhq/weir/shared/"},
	library + "/internal/holds":   {library + "/store", "github.com/weirhq/weir/shared/"},
	library + "/internal/collect": {library + "/internal/histogram"},
	library + "/internal/latency": {library + "/internal/histogram"},

	library + "/internal/level":  {"github.com/weirhq/weir/shared/window"},
	library + "/internal/resend": {library + "/store", "github.com/weirhq/weir/shared/"},

	library + "/internal/planted": {},
	library + "/internal/rewind":  {},

	library + "/internal/anyshard": {library + "/store", "github.com/weirhq/weir/shared/"},
	library + "/internal/slots":    {library + "/store", library + "/internal/fair", "github.com/weirhq/weir/shared/"},
	library + "/internal/leases": {library + "/store", library + "/internal/slots", library + "/internal/fair",
		"github.com/weirhq/weir/shared/"},
	library + "/internal/epochs": {library + "/store", "github.com/weirhq/weir/shared/"},
	library + "/internal/denied": append([]string{library + "/store", library + "/internal/cell",
		library + "/internal/level", "github.com/weirhq/weir/shared/"}, leaves...),
	library + "/internal/evidence": append([]string{library + "/store", library + "/internal/cell",
		library + "/internal/level", library + "/internal/denied", "github.com/weirhq/weir/shared/"}, leaves...),
	// what operators see of the keys depends on the counts and the settings, and not on decisions
	library + "/internal/census": append([]string{library + "/store", library + "/internal/cell", library + "/internal/level",
		library + "/internal/denied", library + "/internal/evidence", library + "/internal/rules", "github.com/weirhq/weir/shared/"}, leaves...),
	library + "/internal/usage": append([]string{library + "/store", library + "/internal/cell", library + "/internal/level",
		"github.com/weirhq/weir/shared/"}, leaves...),
	library + "/internal/queue": append([]string{library + "/store", library + "/internal/cell",
		library + "/internal/level", "github.com/weirhq/weir/shared/"}, leaves...),
	library + "/internal/rules": append([]string{library + "/store", library + "/internal/cell",
		library + "/internal/level", library + "/internal/denied", library + "/internal/evidence",
		"github.com/weirhq/weir/shared/"}, leaves...),
	// the sender may depend on the counts, the wire and the settings, but not on decisions
	library + "/internal/outbox": append([]string{library + "/store", library + "/internal/cell", library + "/internal/level",
		library + "/internal/queue", library + "/internal/epochs", library + "/internal/collect",
		library + "/internal/resend", library + "/internal/rules", library + "/internal/denied",
		library + "/internal/evidence", "github.com/weirhq/weir/shared/"}, leaves...),
	// reservations reach the counts only through the outbox, and decide with the engine that they are given
	library + "/internal/permits": append([]string{library + "/store", library + "/internal/held", library + "/internal/holds", library + "/internal/leases",
		library + "/internal/slots", library + "/internal/collect", library + "/internal/outbox", library + "/internal/rules",
		library + "/internal/cell", library + "/internal/level", library + "/internal/queue", library + "/internal/epochs",
		library + "/internal/resend", library + "/internal/denied", library + "/internal/evidence",
		"github.com/weirhq/weir/shared/"}, leaves...),
}

func TestDependencyRulesOfTheInside(t *testing.T) {
	for _, pkg := range list(t, "./internal/...") {
		if slices.Contains(leaves, pkg) == (inside[pkg] != nil) {
			t.Errorf("%s is neither a leaf nor has rules of its own, or is both", pkg)
		}
		for _, broken := range breachesInside(pkg, dependencies(t, pkg)) {
			t.Error(broken)
		}
	}
}

// Packages that an internal package must not link, first of all the limiter.
func TestDependencyRulesOfTheInsideNoticeABreach(t *testing.T) {
	for _, c := range []struct{ pkg, dep string }{
		{"/internal/resend", "/internal/cell"},
		{"/internal/resend", "/internal/clock"},
		{"/internal/resend", "/relay"},
		{"/internal/anyshard", "/relay"},
		{"/internal/slots", "/memstore"},
		{"/internal/rules", "/internal/queue"},
		{"/internal/cell", "/memstore"},
		{"/internal/cell", "/internal/resend"},
		{"/internal/level", "/internal/cell"},
		{"/internal/clock", "/internal/loop"},
	} {
		if len(breachesInside(library+c.pkg, []string{library + c.dep})) == 0 {
			t.Errorf("%s may link %s", c.pkg, c.dep)
		}
	}
	for _, pkg := range list(t, "./internal/...") {
		if len(breachesInside(pkg, []string{library})) == 0 {
			t.Errorf("%s may link the limiter", pkg)
		}
		if len(breachesInside(pkg, []string{"github.com/prometheus/client_golang/prometheus"})) == 0 {
			t.Errorf("%s may link a client of Prometheus", pkg)
		}
	}
}

// breachesInside returns the dependencies of an internal package that its rules do not name.
func breachesInside(pkg string, deps []string) (broken []string) {
	for _, dep := range deps {
		if strings.HasPrefix(dep, "github.com/prometheus/") {
			broken = append(broken, pkg+" links "+dep+"; package metrics alone may")
		}
		may := slices.ContainsFunc(inside[pkg], func(rule string) bool {
			return dep == rule || strings.HasSuffix(rule, "/") && strings.HasPrefix(dep, rule)
		})
		if strings.HasPrefix(dep, "github.com/weirhq/") && dep != pkg && !may {
			broken = append(broken, pkg+" links "+dep+"; of ours it may link "+strings.Join(inside[pkg], ", "))
		}
	}
	return broken
}

// No file outside cell uses a field of an entry. The compiler ensures that for the library, as long as entries have
// no exported fields.
func TestEntriesHideTheirFields(t *testing.T) {
	for f := range exportedFields(reflect.TypeFor[cell.Entry]()) {
		t.Errorf("an entry's %s is exported", f)
	}
	if len(maps.Collect(exportedFields(reflect.TypeFor[cell.Verdict]()))) == 0 {
		t.Error("a verdict's fields are missed")
	}
}

// exportedFields returns the exported fields of a struct, and of the structs that it embeds.
func exportedFields(of reflect.Type) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for _, f := range reflect.VisibleFields(of) {
			if f.IsExported() && !yield(f.Name, true) {
				return
			}
		}
	}
}

// The rules must be able to fail.
func TestDependencyRulesNoticeABreach(t *testing.T) {
	for dep := range forbidden {
		if len(breaches([]string{"strings", strings.TrimSuffix(dep, "/") + "/x"})) == 0 {
			t.Errorf("%s would not be noticed", dep)
		}
	}
	if !slices.Contains(dependencies(t, "./node"), library) {
		t.Error("the node's dependencies miss the limiter")
	}
}

func breaches(deps []string) (broken []string) {
	for _, dep := range deps {
		for prefix, why := range forbidden {
			if strings.HasPrefix(dep, prefix) && !slices.Contains(own, dep) {
				broken = append(broken, "depends on "+dep+": "+why)
			}
		}
	}
	return broken
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

func dependencies(t *testing.T, pkg string) []string {
	t.Helper()
	return list(t, "-deps", pkg)
}

func list(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}
