package api

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/retire"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// retirements records the calls that it gets.
type retirements struct {
	asked []string
	spec  retire.Spec
	err   error
}

func (s *retirements) ask(what, table string, by controlplane.By) (retire.Retirement, error) {
	s.asked = append(s.asked, strings.TrimSpace(fmt.Sprint(what, " ", table, " ", by.Actor)))
	return retire.Retirement{
		ID: "20260102-150405", Table: table, Dated: "other", Phase: retire.AwaitingFinal, Spec: s.spec,
		Rename:      &retire.Decision{By: by, AtMs: 7},
		Evidence:    retire.Evidence{Rows: 3, Health: retire.Health{Regions: 2, Problem: "x"}},
		Transitions: controlplane.Transitions{Events: []controlplane.Event{{AtMs: 1, Actor: "ann", What: "start"}}},
	}, s.err
}

func (s *retirements) Start(_ context.Context, table string, spec retire.Spec, by controlplane.By) (retire.Retirement, error) {
	s.spec = spec
	return s.ask("start", table, by)
}

func (s *retirements) ApproveRename(_ context.Context, table string, o retire.Order) (retire.Retirement, error) {
	return s.ask("rename", table, o.By)
}

func (s *retirements) ApproveDrop(_ context.Context, table string, o retire.Order) (retire.Retirement, error) {
	return s.ask("drop", table, o.By)
}

func (s *retirements) Abort(_ context.Context, table string, by controlplane.By) (retire.Retirement, error) {
	return s.ask("abort", table, by)
}

func (s *retirements) Status(_ context.Context, table string) (retire.Retirement, error) {
	return s.ask("status", table, controlplane.By{})
}

func (s *retirements) List(_ context.Context, table string) ([]retire.Summary, error) {
	r, err := s.ask("list", table, controlplane.By{})
	return []retire.Summary{r.Summary()}, err
}

// Each call acts on the table that it names, or on the default table, and the response has the evidence for a person's
// decision.
func TestRetirementCalls(t *testing.T) {
	f := serve(t)
	client := controlv1connect.NewRetirementServiceClient(f.http, f.url)
	quiet := int64(1000)
	began, err := client.StartRetirement(t.Context(), connect.NewRequest(&controlv1.StartRetirementRequest{Actor: "ann", Reason: "x", QuietMs: &quiet}))
	if err != nil {
		t.Fatal(err)
	}
	want := retire.DefaultSpec()
	want.QuietMs = 1000
	if f.retirements.spec != want {
		t.Errorf("%+v", f.retirements.spec)
	}
	r := began.Msg.GetRetirement()
	if r.GetPhase() != "awaiting_final_approval" || r.GetTable() != retire.Blocklist || r.GetDated() != "other" || r.GetRenameApproval().GetActor() != "ann" || r.GetDropApproval() != nil ||
		r.GetEvidence().GetRows() != 3 || r.GetEvidence().GetHealthProblem() != "x" || len(r.GetEvents()) != 1 {
		t.Errorf("%v", r)
	}
	_, rename := client.ApproveRename(t.Context(), connect.NewRequest(&controlv1.ApproveRenameRequest{Actor: "ann", Reason: "x", Evidence: "e"}))
	_, drop := client.ApproveDrop(t.Context(), connect.NewRequest(&controlv1.ApproveDropRequest{Actor: "bob", Reason: "x", Table: "other", Evidence: "e"}))
	_, abort := client.AbortRetirement(t.Context(), connect.NewRequest(&controlv1.AbortRetirementRequest{Actor: "ann", Reason: "x"}))
	_, status := client.RetirementStatus(t.Context(), connect.NewRequest(&controlv1.RetirementStatusRequest{}))
	list, err := client.ListRetirements(t.Context(), connect.NewRequest(&controlv1.ListRetirementsRequest{}))
	if rename != nil || drop != nil || abort != nil || status != nil || err != nil || len(list.Msg.GetRetirements()) != 1 {
		t.Errorf("%v, %v, %v, %v, %v", rename, drop, abort, status, err)
	}
	const table = retire.Blocklist
	if got, want := strings.Join(f.retirements.asked, ", "), "start "+table+" ann, rename "+table+" ann, drop other bob, abort "+table+" ann, status "+table+", list "+table; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	long := int64(1e18)
	for says, req := range map[string]*controlv1.StartRetirementRequest{
		"reason is empty":                        {Actor: "ann"},
		"soak_ms is 1000000000000000000 (100 to": {Actor: "ann", Reason: "x", SoakMs: &long},
	} {
		if _, err := client.StartRetirement(t.Context(), connect.NewRequest(req)); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	f.retirements.err = fmt.Errorf("%w: counts are not healthy", controlplane.ErrConflict)
	if _, err := client.ApproveDrop(t.Context(), connect.NewRequest(&controlv1.ApproveDropRequest{Actor: "ann", Reason: "x", Evidence: "e"})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("%v", err)
	}
}

// A step that cannot be undone requires the role admin, all other changes require operator, and reads require viewer.
func TestRetirementRoles(t *testing.T) {
	for procedure, role := range map[string]access.Role{
		controlv1connect.RetirementServiceRetirementStatusProcedure: access.RoleViewer,
		controlv1connect.RetirementServiceListRetirementsProcedure:  access.RoleViewer,
		controlv1connect.RetirementServiceStartRetirementProcedure:  access.RoleOperator,
		controlv1connect.RetirementServiceApproveRenameProcedure:    access.RoleOperator,
		controlv1connect.RetirementServiceAbortRetirementProcedure:  access.RoleOperator,
		controlv1connect.RetirementServiceApproveDropProcedure:      access.RoleAdmin,
	} {
		if rules[procedure].role != role {
			t.Errorf("%s takes %s", procedure, rules[procedure].role)
		}
	}
}
