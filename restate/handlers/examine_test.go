package handlers

import (
	"context"
	"strings"
	"testing"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane/watch"
)

// A real Restate with each fault provoked: other handlers, handlers that are not registered, and no server.
func TestExamine(t *testing.T) {
	t.Parallel()
	c := newCluster(t, Options{}, func(*stepper) map[string]Job {
		return map[string]Job{CleanupJob: {Run: func(restate.ObjectContext) (Report, error) { return Report{}, nil }}}
	})
	uri := "http://" + c.address
	e := Examine{Client: c.client, Admin: NewAdmin(c.http, c.restate.AdminURL()), URI: func() string { return uri }, Fingerprint: c.endpoint.Fingerprint(), Signed: true}
	want := func(name string, result watch.CheckResult, says string) {
		t.Helper()
		for _, check := range e.Checks(t.Context()) {
			if check.Name == name && (check.Result != result || !strings.Contains(check.What+" "+check.Do, says)) || (check.Do == "") != (check.Result == watch.CheckOK) {
				t.Errorf("%+v, want %s, saying %q", check, result, says)
			}
		}
	}
	for _, name := range []string{"ingress", "handlers", "ingress's address", "admin's address", "request identity"} {
		want(name, watch.CheckOK, "")
	}
	e.Signed = false
	want("request identity", watch.CheckWarn, "weir-control identity-key")
	e.Fingerprint = "of another build"
	want("handlers", watch.CheckFail, "another build")
	uri = "http://127.0.0.1:1"
	want("handlers", watch.CheckFail, "--handlers-url")
	if err := c.restate.Kill(); err != nil {
		t.Fatal(err)
	}
	want("ingress", watch.CheckFail, "--restate-ingress")
	want("handlers", watch.CheckFail, "--restate-admin")
}

func TestExposure(t *testing.T) {
	for url, result := range map[string]watch.CheckResult{
		"http://127.0.0.1:1": watch.CheckOK, "http://[::1]:1": watch.CheckOK, "http://10.0.0.1:1": watch.CheckOK,
		"http://100.64.0.1": watch.CheckOK, "http://[fd00::1]:1": watch.CheckOK,
		"http://1.1.1.1:9070": watch.CheckFail, "http://[2606:4700::1]:1": watch.CheckFail, "http://%zz": watch.CheckFail,
	} {
		if c := exposure(context.Background(), "a", url, "s"); c.Result != result {
			t.Errorf("%s: %+v, want %s", url, c, result)
		}
	}
}
