package controlplane

import (
	"os/exec"
	"strings"
	"testing"
)

// Forbidden imports, with reasons.
func TestDependencyRules(t *testing.T) {
	const module = "github.com/weirhq/weir/"
	const parts = ". ./access ./audit ./fleet ./queries ./tunings"
	const jobs = parts + " ./cleanup ./limits ./previews ./retire ./rollout/... ./watch"
	rules := []struct{ packages, forbidden, why string }{
		{". ./store ./api ./console ./cmd/weirctl", module + "dataplane", "the planes do not know each other; weir-control's main hands the simulator to previews and a limiter to the console"},
		{jobs + " ./store ./api", "github.com/restatedev/", "steps must run and be tested without Restate; restate/handlers is its only importer"},
		{jobs + " ./store ./api", "github.com/tetratelabs/wazero", "comes with Restate's SDK and nothing else"},
		{jobs + " ./store ./api", module + "restate", "handlers know steps, not the other way round; mains wire them"},
		{"./api", "github.com/go-sql-driver/mysql", "statements are the store's business"},
		{jobs + " ./api", module + "shared/gen/sql", "statements are the store's business"},
		{". ./store ./api ./console", module + "shared/gen/proto/weir/v1", "only weirctl explain asks nodes: their addresses are not known, and nothing that operates them may wait for them"},
		{jobs, "github.com/go-sql-driver/mysql", "statements are the store's business"},
		{jobs, module + "controlplane/store", "jobs know interfaces of their stores"},
		{jobs, module + "controlplane/api", "jobs do not know who asks for them"},
		{parts + " ./cleanup ./limits ./previews ./retire ./rollout", module + "controlplane/watch", "the watch looks at other jobs, and none needs it to work"},
		{parts + " ./cleanup ./previews ./retire ./rollout ./watch", module + "controlplane/limits", "no job depends on what callers are limited by"},
		{parts + " ./cleanup ./limits ./previews ./rollout", module + "controlplane/retire", "only the watch looks at retirements"},
		{parts + " ./cleanup ./limits ./retire", module + "controlplane/rollout", "only previews and the watch look at rollouts"},
		{parts + " ./cleanup ./limits ./retire ./rollout ./watch", module + "controlplane/previews", "a preview only predicts"},
		{parts + " ./limits ./previews ./rollout", module + "controlplane/cleanup", "only retirements use its batches, and the watch its status"},
		{". ./audit ./fleet ./queries ./tunings ./cleanup ./limits ./previews ./rollout", module + "controlplane/access", "who may do something is decided before it is done; only approvals of a retirement name a role"},
		{". ./access ./audit ./cleanup ./limits", module + "controlplane/fleet", "they work without nodes"},
		{"./rollout/plan", module + "controlplane/rollout/guard", "a plan has bounds, whatever the figures are"},
		{".", module + "controlplane/audit", "what jobs share knows no job"},
		{"./console", "github.com/restatedev/", "the console speaks to the API only"},
		{"./console", "github.com/go-sql-driver/mysql", "the console speaks to the API only"},
		{"./console", module + "controlplane/store", "the console speaks to the API only"},
		{"./cmd/weirctl", "github.com/restatedev/", "weirctl speaks to the API only, and explain to nodes"},
		{"./cmd/weirctl", "github.com/go-sql-driver/mysql", "weirctl speaks to the API only, and explain to nodes"},
		{"./cmd/weirctl", module + "controlplane/store", "weirctl speaks to the API only, and explain to nodes"},
	}
	for _, rule := range rules {
		args := append([]string{"list", "-deps"}, strings.Fields(rule.packages)...)
		out, err := exec.Command("go", args...).Output()
		if err != nil {
			t.Fatalf("go %s: %v", strings.Join(args, " "), err)
		}
		for dep := range strings.FieldsSeq(string(out)) {
			if dep == rule.forbidden || strings.HasPrefix(dep, strings.TrimSuffix(rule.forbidden, "/")+"/") {
				t.Errorf("%s depends on %s: %s", rule.packages, dep, rule.why)
			}
		}
	}
}
