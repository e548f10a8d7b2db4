package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weirhq/weir/"

// rule forbids packages under from to link packages under to.
type rule struct{ from, to, why string }

// The direction of imports: deploy → restate/handlers → controlplane → shared ← dataplane ← deploy. Mains wire
// packages, and may import packages that their plane may not: see unless.
var rules = []rule{
	{module + "shared/", module + "dataplane", "both planes import shared; it imports neither"},
	{module + "shared/", module + "controlplane", "both planes import shared; it imports neither"},
	{module + "shared/", module + "restate", "both planes import shared; it imports neither"},
	{module + "schema", module + "dataplane", "the tables do not know who reads them"},
	{module + "schema", module + "controlplane", "the tables do not know who reads them"},
	{module + "dataplane", module + "controlplane", "nodes do not know who operates them"},
	{module + "dataplane", module + "restate", "durable work runs outside the request path"},
	{module + "dataplane", "github.com/restatedev/", "durable work runs outside the request path"},
	{module + "controlplane", module + "dataplane", "operators' work reaches nodes through the database only"},
	{module + "controlplane", "github.com/restatedev/", "steps are plain Go; restate/handlers orders them"},
	{module + "controlplane", "github.com/redis/", "the origins belong to the nodes"},
	{module + "restate/", module + "dataplane", "operators' work reaches nodes through the database only"},
	{module + "restate/", "github.com/redis/", "the origins belong to the nodes"},
	{module, module + "deploy/", "nothing knows how it is deployed"},
	{module, module + "shared/servers", "what starts servers is for tests and for deploy"},
	{module, module + "shared/manual", "what reads the pages is for tests"},
	{module, module + "shared/await", "what waits for conditions is for tests"},
	{module, module + "shared/attack", "hostile clients are for tests"},
	{module, module + "dataplane/storetest", "suites of stores are for tests"},
	{module, module + "schema/schematest", "what opens databases for tests is for tests"},
	{module, module + "dataplane/internal/rewind", "what moves a server's data in time is for tests"},
}

// unless lists packages that may break a rule, with the reason: any rule, or the rule about a single package.
var unless = []struct{ from, to, why string }{
	{module + "controlplane/cmd/weir-control", "", "a main: it wires the handlers to the steps"},
	{module + "deploy", "", "it is the top of the house"},
	{module + "shared/servers", module + "shared/servers", "itself"},
	{module + "shared/manual", module + "shared/manual", "itself"},
	{module + "shared/await", module + "shared/await", "itself"},
	{module + "shared/attack", module + "shared/attack", "itself"},
	{module + "dataplane/storetest", module + "dataplane/storetest", "itself"},
	{module + "schema/schematest", module + "schema/schematest", "itself"},
	{module + "dataplane/internal/rewind", module + "dataplane/internal/rewind", "itself"},
	{module + "dataplane/storetest", module + "shared/await", "its suites are for tests"},
}

type listed struct {
	ImportPath string
	Deps       []string
}

func TestDependencyRulesOfTheHouse(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps=false", "-json=ImportPath,Deps", module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("only %d packages listed", len(all))
	}
	for _, breach := range breaches(all) {
		t.Error(breach)
	}
}

// A planted import of every forbidden kind is noticed.
func TestDependencyRulesOfTheHouseNoticeABreach(t *testing.T) {
	for _, r := range rules {
		p := listed{r.from + "/planted", []string{"fmt", r.to + "/planted"}}
		if r.from == module {
			p.ImportPath = module + "dataplane/planted"
		}
		if len(breaches([]listed{p})) == 0 {
			t.Errorf("%s importing %s is not noticed", r.from, r.to)
		}
	}
}

func breaches(packages []listed) (found []string) {
	for _, p := range packages {
		for _, r := range rules {
			if !under(p.ImportPath, r.from) || excused(p.ImportPath, r.to) {
				continue
			}
			if i := slices.IndexFunc(p.Deps, func(dep string) bool { return under(dep, r.to) }); i >= 0 {
				found = append(found, p.ImportPath+" links "+p.Deps[i]+": "+r.why)
			}
		}
	}
	return found
}

func under(path, room string) bool {
	room = strings.TrimSuffix(room, "/")
	return path == room || strings.HasPrefix(path, room+"/")
}

func excused(path, to string) bool {
	for _, u := range unless {
		if under(path, u.from) && (u.to == "" || u.to == to) {
			return true
		}
	}
	return false
}
