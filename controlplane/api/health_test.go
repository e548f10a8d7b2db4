package api

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/watch"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// The response has every field of a finding and of a check, as valid UTF-8.
func TestHealthCalls(t *testing.T) {
	f := serve(t)
	f.health = watch.HealthDocument{
		AtMs: 7, Overall: watch.SeverityCritical, LeftOut: 2, Live: true,
		Findings: []watch.Finding{{Kind: watch.FindingRegionDark, Subject: "e\xfe", Severity: watch.SeverityCritical, What: "w", SinceMs: 5, Do: "d"}},
		Settling: []watch.Finding{{Kind: watch.FindingTuningSkew}},
	}
	f.checks = []watch.Check{{Area: "mysql", Name: "version", Result: watch.CheckWarn, What: "w", Do: "d"}}
	client := controlv1connect.NewHealthServiceClient(f.http, f.url)
	health, err := client.GetHealth(t.Context(), connect.NewRequest(&controlv1.GetHealthRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, health.Msg, &controlv1.GetHealthResponse{Health: &controlv1.Health{
		Overall: "critical", AtMs: 7, LeftOut: 2, Live: true,
		Findings: []*controlv1.Finding{{Kind: "region_dark", Subject: "e\uFFFD", Severity: "critical", What: "w", SinceMs: 5, Advice: "d"}},
	}})
	checks, err := client.Diagnose(t.Context(), connect.NewRequest(&controlv1.DiagnoseRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, checks.Msg, &controlv1.DiagnoseResponse{Checks: []*controlv1.Check{{Area: "mysql", Name: "version", Result: "warn", What: "w", Advice: "d"}}})
}
