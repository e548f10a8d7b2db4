package api

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/workspaces"
)

// procedureScope describes which requests of a procedure a token with workspaces allows.
type procedureScope struct {
	kind string
	body string // of a request about a workspace, %s
}

var (
	fleetWide = procedureScope{kind: "fleet"}                                // always rejected
	everybody = procedureScope{kind: "everybody"}                            // about no workspace
	filtered  = procedureScope{kind: "filtered"}                             // answers without other workspaces
	own       = procedureScope{kind: "own"}                                  // returns only the caller's own changes
	named     = procedureScope{kind: "workspace", body: `{"workspace":%s}`}  // names one workspace
	optional  = procedureScope{kind: "filtered", body: `{"workspace":%s}`}   // names one workspace, or no workspace
	nested    = procedureScope{"workspace", `{"override":{"workspace":%s}}`} // of its override
	listed    = procedureScope{"workspace", `{"changes":[{"workspace":"acme"},{"workspace":%s}]}`}
)

// procedureScopes must have every procedure, so that a new procedure fails the test until its scope has been decided.
var procedureScopes = map[string]procedureScope{
	controlv1connect.ControlServiceFleetProcedure:               fleetWide,
	controlv1connect.ControlServiceCleanupStatusProcedure:       fleetWide,
	controlv1connect.ControlServiceCleanupRunProcedure:          fleetWide,
	controlv1connect.ControlServiceCleanupPauseProcedure:        fleetWide,
	controlv1connect.ControlServiceCleanupResumeProcedure:       fleetWide,
	controlv1connect.HealthServiceGetHealthProcedure:            fleetWide,
	controlv1connect.HealthServiceDiagnoseProcedure:             fleetWide,
	controlv1connect.AuditServiceListAuditProcedure:             own,
	controlv1connect.AuditServiceExportAuditProcedure:           fleetWide,
	controlv1connect.RolloutServiceStartRolloutProcedure:        fleetWide,
	controlv1connect.RolloutServiceRolloutStatusProcedure:       fleetWide,
	controlv1connect.RolloutServiceOperateRolloutProcedure:      fleetWide,
	controlv1connect.RolloutServiceListRolloutsProcedure:        fleetWide,
	controlv1connect.RolloutServicePreviewRolloutProcedure:      fleetWide,
	controlv1connect.RolloutServiceGetTuningProcedure:           fleetWide,
	controlv1connect.RolloutServiceListTuningsProcedure:         fleetWide,
	controlv1connect.RetirementServiceStartRetirementProcedure:  fleetWide,
	controlv1connect.RetirementServiceRetirementStatusProcedure: fleetWide,
	controlv1connect.RetirementServiceApproveRenameProcedure:    fleetWide,
	controlv1connect.RetirementServiceApproveDropProcedure:      fleetWide,
	controlv1connect.RetirementServiceAbortRetirementProcedure:  fleetWide,
	controlv1connect.RetirementServiceListRetirementsProcedure:  fleetWide,
	controlv1connect.TokenServiceCreateTokenProcedure:           fleetWide,
	controlv1connect.TokenServiceRotateTokenProcedure:           fleetWide,
	controlv1connect.TokenServiceRevokeTokenProcedure:           fleetWide,
	controlv1connect.TokenServiceListTokensProcedure:            fleetWide,
	controlv1connect.TokenServiceWhoAmIProcedure:                everybody,

	controlv1connect.SettingsServiceSetOverrideProcedure:       nested,
	controlv1connect.SettingsServiceChangeOverrideProcedure:    named,
	controlv1connect.SettingsServiceGetOverrideProcedure:       named,
	controlv1connect.SettingsServiceDeleteOverrideProcedure:    named,
	controlv1connect.SettingsServiceListOverridesProcedure:     named,
	controlv1connect.SettingsServiceListAllOverridesProcedure:  filtered,
	controlv1connect.SettingsServiceResetKeyProcedure:          named,
	controlv1connect.SettingsServiceListResetsProcedure:        named,
	controlv1connect.SettingsServiceSetNamespaceProcedure:      named,
	controlv1connect.SettingsServiceListNamespacesProcedure:    named,
	controlv1connect.SettingsServiceListAllNamespacesProcedure: filtered,
	controlv1connect.SettingsServiceGetNamespaceProcedure:      named,

	controlv1connect.TopKeysServiceTopKeysProcedure:        optional,
	controlv1connect.TopKeysServiceListHeldProcedure:       optional,
	controlv1connect.TopKeysServiceGetUsageProcedure:       optional,
	controlv1connect.TopKeysServiceGetKeyProcedure:         named,
	controlv1connect.TopKeysServiceListKeysProcedure:       named,
	controlv1connect.TopKeysServiceEstimateLimitsProcedure: listed,
}

// A token with workspaces can call only procedures about these workspaces, whatever its role is. The test calls each
// procedure in the .proto files.
func TestATokenIsValidForItsWorkspacesAlone(t *testing.T) {
	f, _ := guarded(t)
	const token = "admin@acme,beta"
	procedures := procedures(t)
	for _, procedure := range procedures {
		scope, ok := procedureScopes[procedure]
		if !ok {
			t.Errorf("%s: nothing is decided for tokens with workspaces", procedure)
			continue
		}
		if names, may := namesWorkspaces(t, procedure), scope.body != "" || scope.kind == "own"; names && !may && procedure != controlv1connect.RolloutServiceStartRolloutProcedure {
			t.Errorf("%s has requests with a workspace, and is listed as %s", procedure, scope.kind)
		}
		var denied, allowed []string
		switch scope.kind {
		case "fleet": // a rollout of limits too: its nodes and its lock are the fleet's, whatever the workspaces of its limits
			denied = []string{`{}`, `{"limits":{"overrides":[{"after":{"workspace":"acme","namespace":"n","pattern":"p"}}]}}`}
		case "everybody", "filtered":
			allowed = []string{`{}`}
		case "own":
			denied, allowed = []string{`{}`, `{"actor":"bot-viewer"}`, `{"workspace":"acme"}`}, []string{`{"actor":"bot-admin"}`}
		case "workspace":
			denied = []string{`{}`}
		}
		if scope.body != "" {
			for _, name := range []string{"other", "nobody", "acme,beta", "acm", "Acme", "acme "} {
				denied = append(denied, fmt.Sprintf(scope.body, `"`+name+`"`))
			}
			allowed = append(allowed, fmt.Sprintf(scope.body, `"acme"`), fmt.Sprintf(scope.body, `"beta"`))
		}
		for _, body := range denied {
			status, answer := f.post(t, procedure, token, body)
			if status != http.StatusForbidden || !strings.Contains(answer, errScope.Error()) {
				t.Errorf("%s %s: %d %s", procedure, body, status, answer)
			}
		}
		for _, body := range allowed {
			status, answer := f.post(t, procedure, token, body)
			if status == http.StatusForbidden || status == http.StatusUnauthorized {
				t.Errorf("%s %s: %d %s", procedure, body, status, answer)
			}
		}
		for _, body := range slices.Concat(denied, allowed) {
			if status, answer := f.post(t, procedure, "admin", body); status == http.StatusForbidden {
				t.Errorf("%s %s with a token of all workspaces: %s", procedure, body, answer)
			}
		}
	}
	if len(procedures) != len(procedureScopes) {
		t.Errorf("%d procedures, and %d are listed", len(procedures), len(procedureScopes))
	}
	if !slices.Contains(f.failures, controlplane.AuthScope) || slices.Contains(f.failures, controlplane.AuthRole) {
		t.Errorf("what is counted: %q", f.failures)
	}
}

// namesWorkspaces reports whether requests of a procedure have a field for a workspace, at any depth.
func namesWorkspaces(t *testing.T, procedure string) bool {
	t.Helper()
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(procedure, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		t.Fatal(err)
	}
	var in func(m protoreflect.MessageDescriptor, depth int) bool
	in = func(m protoreflect.MessageDescriptor, depth int) bool {
		for i := range m.Fields().Len() {
			field := m.Fields().Get(i)
			if field.Name() == "workspace" || depth < 5 && field.Message() != nil && in(field.Message(), depth+1) {
				return true
			}
		}
		return false
	}
	return in(found.(protoreflect.MethodDescriptor).Input(), 0)
}

// A list over all workspaces gets the workspaces of the caller's token, so that other workspaces are left out before
// keys are ranked, counted or split into pages.
func TestListsAreAskedForTheWorkspacesOfTheToken(t *testing.T) {
	acme, err := workspaces.New("acme")
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]*workspaces.Set{"viewer@acme": acme, "viewer": nil} {
		var got []*workspaces.Set
		f := &fixture{settings: settings{lists: func(of *workspaces.Set) { got = append(got, of) }}}
		f.url = served(t, Config{
			Settings: &f.settings, Tokens: &ring{}, RequireTokens: true,
			TopKeys: func(_ context.Context, q limits.TopQuery) (limits.TopKeys, error) {
				got = append(got, q.Visible)
				return limits.TopKeys{}, nil
			},
			Held: func(_ context.Context, q limits.TopQuery) (limits.HeldReport, error) {
				got = append(got, q.Visible)
				return limits.HeldReport{}, nil
			},
			Usage: func(_ context.Context, q limits.UsageQuery) (limits.Usage, error) {
				got = append(got, q.Visible)
				return limits.Usage{}, nil
			},
			Limits: func(_ context.Context, _ []limits.Change, visible *workspaces.Set) (limits.Estimate, error) {
				got = append(got, visible)
				return limits.Estimate{}, nil
			},
		})
		f.http = http.DefaultClient
		for procedure, body := range map[string]string{
			controlv1connect.TopKeysServiceTopKeysProcedure:            `{"by":"TOP_BY_HOT"}`,
			controlv1connect.TopKeysServiceListHeldProcedure:           `{}`,
			controlv1connect.TopKeysServiceGetUsageProcedure:           `{}`,
			controlv1connect.TopKeysServiceEstimateLimitsProcedure:     `{"changes":[{"workspace":"acme"}]}`,
			controlv1connect.SettingsServiceListAllOverridesProcedure:  `{}`,
			controlv1connect.SettingsServiceListAllNamespacesProcedure: `{}`,
		} {
			got = nil
			if status, answer := f.post(t, procedure, token, body); status != http.StatusOK || !reflect.DeepEqual(got, []*workspaces.Set{want}) {
				t.Errorf("%s with %s: %d %s, for %v", procedure, token, status, answer, got)
			}
		}
	}
}

// Tokens are made with workspaces and listed with them, and their holders see them.
func TestTokensHaveWorkspaces(t *testing.T) {
	f, r := guarded(t)
	status, answer := f.post(t, controlv1connect.TokenServiceCreateTokenProcedure, "admin",
		`{"name":"ci","role":"viewer","reason":"x","workspaces":["acme","beta"]}`)
	if status != http.StatusOK || !slices.Equal(r.workspaces, []string{"acme", "beta"}) {
		t.Errorf("%d %s: %q", status, answer, r.workspaces)
	}
	var list controlv1.ListTokensResponse
	_, answer = f.post(t, controlv1connect.TokenServiceListTokensProcedure, "admin", `{}`)
	if err := protojson.Unmarshal([]byte(answer), &list); err != nil || len(list.GetTokens()) != 1 || !slices.Equal(list.GetTokens()[0].GetWorkspaces(), []string{"acme"}) {
		t.Errorf("%v", &list)
	}
	var who controlv1.WhoAmIResponse
	_, answer = f.post(t, controlv1connect.TokenServiceWhoAmIProcedure, "viewer@beta,acme", `{}`)
	if err := protojson.Unmarshal([]byte(answer), &who); err != nil || !slices.Equal(who.GetWorkspaces(), []string{"acme", "beta"}) {
		t.Errorf("%v", &who)
	}
}
