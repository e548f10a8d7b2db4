package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/workspaces"
)

// settings records the calls that it gets.
type settings struct {
	override  limits.Override
	namespace limits.Namespace
	change    limits.NamespaceChange

	overrideChange limits.OverrideChange

	by      controlplane.By
	longest time.Duration

	lists func(of *workspaces.Set) // is called by AllOverrides and AllNamespaces; nil: nothing is
}

func (s *settings) listed(of *workspaces.Set) {
	if s.lists != nil {
		s.lists(of)
	}
}

func (s *settings) SetOverride(_ context.Context, o limits.Override, by controlplane.By) error {
	s.override, s.by = o, by
	return o.Validate()
}

func (s *settings) ChangeOverride(_ context.Context, workspace, namespace, pattern string, change limits.OverrideChange, by controlplane.By) (limits.Override, error) {
	s.overrideChange, s.by = change, by
	if seen := change.IfUpdatedMs; seen != nil && *seen != at.UnixMilli() {
		return limits.Override{}, fmt.Errorf("%w: it was changed", controlplane.ErrConflict)
	}
	return limits.Override{Workspace: workspace, Namespace: namespace, Pattern: pattern, Limit: *change.Limit, Candidate: 7}, nil
}

func (s *settings) Override(_ context.Context, _, _, pattern string) (limits.Override, error) {
	if s.override.Pattern != pattern {
		return limits.Override{}, fmt.Errorf("%w: there is no override %q", controlplane.ErrNotFound, pattern)
	}
	o := s.override
	o.UpdatedAt = at
	return o, nil
}

func (s *settings) DeleteOverride(_ context.Context, _, _, pattern string, _ *int64, by controlplane.By) error {
	if s.override.Pattern != pattern {
		return fmt.Errorf("%w: there is no override %q", controlplane.ErrNotFound, pattern)
	}
	s.override, s.by = limits.Override{}, by
	return nil
}

func (s *settings) Overrides(_ context.Context, _, _, after string) ([]limits.Override, bool, error) {
	o := s.override
	o.UpdatedAt = at
	return []limits.Override{o}, after == "", nil
}

func (s *settings) AllOverrides(_ context.Context, of *workspaces.Set, after limits.OverrideName) ([]limits.Override, bool, error) {
	s.listed(of)
	return []limits.Override{{Workspace: after.Workspace, Namespace: after.Namespace, Pattern: after.Pattern + "2", Limit: 5, UpdatedAt: at}}, after.Pattern == "", nil
}

func (s *settings) AllNamespaces(_ context.Context, of *workspaces.Set, afterWorkspace, afterNamespace string) ([]limits.Namespace, bool, error) {
	s.listed(of)
	return []limits.Namespace{{Workspace: afterWorkspace, Namespace: afterNamespace + "2", Mode: "exact", UpdatedAt: at}}, afterNamespace == "", nil
}

func (s *settings) SetNamespace(_ context.Context, workspace, namespace string, change limits.NamespaceChange, by controlplane.By) (limits.Namespace, error) {
	s.namespace, s.change, s.by = limits.DefaultNamespace(workspace, namespace), change, by
	return s.namespace, nil
}

func (s *settings) Namespaces(_ context.Context, _, after string) ([]limits.Namespace, bool, error) {
	return []limits.Namespace{s.namespace}, after == "a", nil
}

func (s *settings) Namespace(_ context.Context, _, namespace string) (limits.Namespace, error) {
	if s.namespace.Namespace != namespace {
		return limits.Namespace{}, fmt.Errorf("%w: namespace %q has no settings", controlplane.ErrNotFound, namespace)
	}
	return s.namespace, nil
}

func (s *settings) ResetKey(_ context.Context, workspace, namespace, identifier string, longest time.Duration, by controlplane.By) (limits.Reset, error) {
	s.longest, s.by = longest, by
	return limits.Reset{Workspace: workspace, Namespace: namespace, Identifier: identifier, Generation: 2, SetAt: at, ExpiresAt: at}, nil
}

func (s *settings) Resets(_ context.Context, workspace, namespace string) ([]limits.Reset, error) {
	return []limits.Reset{{Workspace: workspace, Namespace: namespace, Identifier: "u1", Generation: 1, SetAt: at, ExpiresAt: at}}, nil
}

func TestSettingsCalls(t *testing.T) {
	f := serve(t)
	for _, tc := range []struct {
		procedure, body string
		status          int
		says            string
	}{
		{controlv1connect.SettingsServiceSetOverrideProcedure, `{"actor":"ann","reason":"x","override":{"workspace":"acme","namespace":"api","pattern":"u*","limit":"0","durationMs":"60000","candidate":"7","shadow":true}}`, http.StatusOK, `{}`},
		{controlv1connect.SettingsServiceListOverridesProcedure, `{"workspace":"acme","namespace":"api"}`, http.StatusOK, `"pattern":"u*", "durationMs":"60000", "updatedAtMs":"1700000000000", "candidate":"7", "shadow":true}], "hasMore":true}`},
		{controlv1connect.SettingsServiceListAllOverridesProcedure, `{"afterWorkspace":"acme","afterNamespace":"api","afterPattern":"u"}`, http.StatusOK, `{"overrides":[{"workspace":"acme", "namespace":"api", "pattern":"u2", "limit":"5", "updatedAtMs":"1700000000000"}]}`},
		{controlv1connect.SettingsServiceListAllOverridesProcedure, `{}`, http.StatusOK, `"hasMore":true`},
		{controlv1connect.SettingsServiceListAllNamespacesProcedure, `{"afterWorkspace":"acme","afterNamespace":"api"}`, http.StatusOK, `{"namespaces":[{"workspace":"acme", "namespace":"api2", "mode":"exact", "updatedAtMs":"1700000000000"}]}`},
		{controlv1connect.SettingsServiceListAllNamespacesProcedure, `{}`, http.StatusOK, `"hasMore":true`},
		{controlv1connect.SettingsServiceGetOverrideProcedure, `{"workspace":"acme","namespace":"api","pattern":"u*"}`, http.StatusOK, `"updatedAtMs":"1700000000000", "candidate":"7", "shadow":true}}`},
		{controlv1connect.SettingsServiceGetOverrideProcedure, `{"workspace":"acme","namespace":"api","pattern":"v"}`, http.StatusNotFound, `there is no override \"v\"`},
		{controlv1connect.SettingsServiceChangeOverrideProcedure, `{"actor":"ann","workspace":"acme","namespace":"api","pattern":"u*","limit":"5"}`, http.StatusBadRequest, "reason is empty"},
		{controlv1connect.SettingsServiceChangeOverrideProcedure, `{"actor":"ann","reason":"x","workspace":"acme","namespace":"api","pattern":"u*","limit":"5","ifUpdatedAtMs":"0"}`, http.StatusBadRequest, "it was changed"},
		{controlv1connect.SettingsServiceChangeOverrideProcedure, `{"actor":"ann","reason":"x","workspace":"acme","namespace":"api","pattern":"u*","limit":"5","durationMs":"0","shadow":false,"ifUpdatedAtMs":"1700000000000"}`, http.StatusOK, `"limit":"5", "candidate":"7"`},
		{controlv1connect.SettingsServiceSetOverrideProcedure, `{"actor":"ann","override":{"limit":"1"}}`, http.StatusBadRequest, "reason is empty"},
		{controlv1connect.SettingsServiceDeleteOverrideProcedure, `{"actor":"ann","reason":"x","workspace":"acme","namespace":"api","pattern":"v"}`, http.StatusNotFound, `there is no override \"v\"`},
		{controlv1connect.SettingsServiceDeleteOverrideProcedure, `{"actor":"ann","reason":"x","workspace":"acme","namespace":"api","pattern":"u*"}`, http.StatusOK, `{}`},
		{controlv1connect.SettingsServiceSetNamespaceProcedure, `{"actor":"ann","reason":"x","workspace":"acme","namespace":"api","shadow":false,"window":"precise","estimate":"","ifUpdatedAtMs":"0"}`, http.StatusOK, `"mode":"exact"`},
		{controlv1connect.SettingsServiceListNamespacesProcedure, `{"workspace":"acme"}`, http.StatusOK, `"outage":"local"`},
		{controlv1connect.SettingsServiceListNamespacesProcedure, `{"workspace":"acme"}`, http.StatusOK, `"window":"cells"`},
		{controlv1connect.SettingsServiceListNamespacesProcedure, `{"workspace":"acme","after":"a"}`, http.StatusOK, `"hasMore":true`},
		{controlv1connect.SettingsServiceGetNamespaceProcedure, `{"workspace":"acme","namespace":"api"}`, http.StatusOK, `"outage":"local"`},
		{controlv1connect.SettingsServiceGetNamespaceProcedure, `{"workspace":"acme","namespace":"b"}`, http.StatusNotFound, `has no settings`},
		{controlv1connect.SettingsServiceResetKeyProcedure, `{"actor":"ann","workspace":"acme","namespace":"api","identifier":"u1"}`, http.StatusBadRequest, "reason is empty"},
		{controlv1connect.SettingsServiceResetKeyProcedure, `{"actor":"ann","reason":"x","workspace":"acme","namespace":"api","identifier":"u1","longestWindowMs":"60000"}`, http.StatusOK, `"identifier":"u1", "generation":"2", "setAtMs":"1700000000000"`},
		{controlv1connect.SettingsServiceListResetsProcedure, `{"workspace":"acme","namespace":"api"}`, http.StatusOK, `"generation":"1"`},
	} {
		status, answer := f.post(t, tc.procedure, "", tc.body)
		if status != tc.status || !strings.Contains(strings.ReplaceAll(answer, ", ", ","), strings.ReplaceAll(tc.says, ", ", ",")) {
			t.Errorf("%s %s: %d %s", tc.procedure, tc.body, status, answer)
		}
	}
	c := f.settings.change
	if c.Shadow == nil || *c.Shadow || c.Estimate == nil || *c.Estimate != "" || c.IfUpdatedMs == nil || *c.IfUpdatedMs != 0 || c.Mode != nil || c.Outage != nil || c.NodeShare != nil || c.Window == nil || *c.Window != "precise" {
		t.Errorf("%+v: what was given is not what arrived", c)
	}
	if c := f.settings.overrideChange; *c.Limit != 5 || c.DurationMs == nil || *c.DurationMs != 0 || c.Shadow == nil || *c.Shadow || c.Candidate != nil {
		t.Errorf("%+v: what was given is not what arrived", c)
	}
	if f.settings.longest != time.Minute {
		t.Errorf("longest window %v", f.settings.longest)
	}
	if f.settings.by != (controlplane.By{Actor: "ann", Reason: "x"}) {
		t.Errorf("by %+v", f.settings.by)
	}
}
