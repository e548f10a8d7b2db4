package api

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/testcert"
)

// Over real TLS, a caller whose certificate has a role is the actor of its changes, whatever actor or token the call
// has, and has no other role. Callers with other certificates need a token.
func TestACertificateIsWhoCalls(t *testing.T) {
	const spiffe = "spiffe://corp.example/ann"
	authority, schedule, rollouts := testcert.New(t), &schedule{}, &rollouts{}
	service := NewHandler(Config{
		Cleanup: schedule, Rollouts: rollouts, Tokens: &ring{}, RequireTokens: true, Log: slog.New(slog.DiscardHandler),
		Subjects: map[string]access.Role{spiffe: access.RoleOperator, "bob": access.RoleAdmin, "eve": access.RoleViewer},
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(service, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(tls.NewListener(l, &tls.Config{
			Certificates: []tls.Certificate{certificateOf(t, authority.Issue(t))},
			ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool(), NextProtos: []string{"h2", "http/1.1"},
		}))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	uri := func(texts ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.Subject = pkix.Name{CommonName: "somebody"}
			for _, text := range texts {
				u, err := url.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				c.URIs = append(c.URIs, u)
			}
		}
	}
	name := func(text string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: text} }
	}
	for what, tc := range map[string]struct {
		certificate func(*x509.Certificate)
		token       string
		code        connect.Code // of the change; 0: it is made
		actor, says string
	}{
		"a URI":                       {uri(spiffe), "", 0, spiffe, ""},
		"a URI, beside a token":       {uri(spiffe), "operator", 0, spiffe, ""},
		"a common name":               {name("bob"), "", 0, "bob", ""},
		"too small a role":            {name("eve"), "", connect.CodePermissionDenied, "", "eve has the role viewer; this requires the role operator"},
		"and a token does not help":   {name("eve"), "admin", connect.CodePermissionDenied, "", "eve has the role viewer"},
		"no role":                     {name("mallory"), "", connect.CodeUnauthenticated, "", `certificate of "mallory" has no role here`},
		"no role, and a token":        {name("mallory"), "operator", 0, "bot-operator", ""},
		"a common name like a URI":    {name(spiffe), "", connect.CodeUnauthenticated, "", "requires a token"},
		"two URIs":                    {uri(spiffe, "spiffe://corp.example/bob"), "", connect.CodeUnauthenticated, "", "requires a token"},
		"a URI goes before the name":  {func(c *x509.Certificate) { uri("spiffe://corp.example/x")(c); c.Subject.CommonName = "bob" }, "", connect.CodeUnauthenticated, "", "has no role here"},
		"another letter, another one": {name("Bob"), "", connect.CodeUnauthenticated, "", "has no role here"},
	} {
		pair := certificateOf(t, authority.IssueLike(t, tc.certificate))
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), Certificates: []tls.Certificate{pair}}, ForceAttemptHTTP2: true}
		client := &http.Client{Transport: transport}
		address := "https://" + l.Addr().String()
		req := connect.NewRequest(&controlv1.CleanupRunRequest{Actor: "somebody-else", Reason: "deploy"})
		if tc.token != "" {
			req.Header().Set("Authorization", "Bearer "+tc.token)
		}
		schedule.runBy = controlplane.By{}
		_, err := controlv1connect.NewControlServiceClient(client, address).CleanupRun(t.Context(), req)
		if connect.CodeOf(err) != tc.code && (tc.code != 0 || err != nil) || schedule.runBy.Actor != tc.actor || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: by %q, %v", what, schedule.runBy.Actor, err)
		}
		if tc.token == "" && tc.actor != "" {
			who, err := controlv1connect.NewTokenServiceClient(client, address).WhoAmI(t.Context(), connect.NewRequest(&controlv1.WhoAmIRequest{}))
			if err != nil || who.Msg.GetName() != tc.actor {
				t.Errorf("%s: %v, %v", what, who, err)
			}
			approve := &controlv1.OperateRolloutRequest{Id: "r1", Action: controlv1.RolloutAction_ROLLOUT_ACTION_APPROVE, Actor: "somebody-else", Reason: "x", Stage: 1, Asked: 1, Evidence: "e"}
			_, _ = controlv1connect.NewRolloutServiceClient(client, address).OperateRollout(t.Context(), connect.NewRequest(approve)) // there is none
			if rollouts.order.By.Actor != tc.actor {
				t.Errorf("%s: the approval is by %q", what, rollouts.order.By.Actor)
			}
		}
		transport.CloseIdleConnections()
	}
}

func certificateOf(t *testing.T, p testcert.Pair) tls.Certificate {
	t.Helper()
	dir := t.TempDir()
	p.Write(t, dir+"/c.pem", dir+"/c.key")
	pair, err := tls.LoadX509KeyPair(dir+"/c.pem", dir+"/c.key")
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// A certificate that was not verified, or that has expired since its connection was made, has no subject.
func TestSubjectOf(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "bob"}, NotAfter: now}
	verified := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
	if got := subjectOf(verified, now); got != "bob" {
		t.Errorf("%q", got)
	}
	for what, got := range map[string]string{
		"none": subjectOf(nil, now), "expired": subjectOf(verified, now.Add(time.Second)),
		"not verified": subjectOf(&tls.ConnectionState{PeerCertificates: verified.PeerCertificates}, now),
	} {
		if got != "" {
			t.Errorf("%s: %q", what, got)
		}
	}
}

// Audit entries and approvals identify an operator by name. A token must not have the name of a certificate's subject,
// because its holder could act as that subject and read its entries.
func TestNoTokenHasTheNameOfACertificate(t *testing.T) {
	const subject = "spiffe://corp/ann"
	client := controlv1connect.NewTokenServiceClient(http.DefaultClient, served(t, Config{Tokens: new(ring),
		Subjects: map[string]access.Role{subject: access.RoleAdmin}}))
	for name, want := range map[string]connect.Code{subject: connect.CodeInvalidArgument, "ann": 0} {
		_, err := client.CreateToken(t.Context(), connect.NewRequest(&controlv1.CreateTokenRequest{Name: name, Role: "viewer",
			Actor: "bob", Reason: "x"}))
		if err != nil && connect.CodeOf(err) != want || err == nil && want != 0 {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
	}
}
