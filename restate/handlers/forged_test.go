package handlers

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
)

// serveEndpoint serves the handlers as weir-control does.
func serveEndpoint(t *testing.T, o Options) (address string) {
	t.Helper()
	o.Log, o.Metrics = slog.New(slog.DiscardHandler), controlplane.NewMetrics()
	e, err := NewEndpoint(o)
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "")
	served := make(chan error, 1)
	go func() { served <- e.Serve(l) }()
	t.Cleanup(func() {
		_ = e.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// A web page can send requests to this machine, with another site's host name or its own (DNS rebinding). Without a
// signature they would otherwise run handlers.
func TestWebPagesReachNoHandler(t *testing.T) {
	t.Parallel()
	c := overBoth(t)["HTTP/1.1"]
	address := serveEndpoint(t, Options{AllowedHosts: []string{"weir.internal"}})
	for _, tc := range []struct {
		name, host, field, value string
		refused                  bool
	}{
		{name: "rebound", host: "evil.example:9080", refused: true},
		{name: "rebound, with a port that is none", host: "evil.example:localhost", refused: true},
		{name: "another site", field: "Sec-Fetch-Site", value: "cross-site", refused: true},
		{name: "another port", field: "Origin", value: "http://localhost:3000", refused: true},
		{name: "the machine itself"},
		{name: "localhost", host: "localhost:9080"},
		{name: "allowed", host: "weir.internal"},
	} {
		req, err := http.NewRequest(http.MethodPost, "http://"+address+"/invoke/WeirCron/Status", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = tc.host
		if tc.field != "" {
			req.Header.Set(tc.field, tc.value)
		}
		res, err := c.Do(req) // without a content type, which the SDK rejects
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if (res.StatusCode == http.StatusForbidden) != tc.refused || res.StatusCode == http.StatusOK {
			t.Errorf("%s: %s", tc.name, res.Status)
		}
	}
}

// "All others are rejected": any kind of signature that is not Restate's for this path and this time.
func TestForgedIdentities(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	const path = "/discover"
	key, now := "publickeyv1_"+base58(public), time.Now().Unix()
	head := fmt.Sprintf(`{"typ":"JWT","alg":"EdDSA","kid":%q}`, key)
	claims := func(aud string, nbf, exp int64) string {
		return fmt.Sprintf(`{"aud":%q,"nbf":%d,"iat":%d,"exp":%d}`, aud, nbf, nbf, exp)
	}
	sign := func(with ed25519.PrivateKey, head, claims string) string {
		text := base64.RawURLEncoding.EncodeToString([]byte(head)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
		return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(with, []byte(text)))
	}
	right := sign(private, head, claims(path, now-5, now+60))
	handler, err := sdkHandler(nil, slog.DiscardHandler, key)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		fields map[string][]string
		want   int
	}{
		"signed":            {signed(right), http.StatusOK},
		"no signature":      {nil, http.StatusUnauthorized},
		"no token":          {map[string][]string{"X-Restate-Signature-Scheme": {"v1"}}, http.StatusUnauthorized},
		"unsigned":          {map[string][]string{"X-Restate-Signature-Scheme": {"unsigned"}}, http.StatusUnauthorized},
		"two tokens":        {signed(right, right), http.StatusUnauthorized},
		"another key":       {signed(sign(other, head, claims(path, now-5, now+60))), http.StatusUnauthorized},
		"a key by name":     {signed(sign(other, strings.Replace(head, "_", "_x", 1), claims(path, now-5, now+60))), http.StatusUnauthorized},
		"replayed later":    {signed(sign(private, head, claims(path, now-120, now-60))), http.StatusUnauthorized},
		"not valid yet":     {signed(sign(private, head, claims(path, now+60, now+120))), http.StatusUnauthorized},
		"for another path":  {signed(sign(private, head, claims("/invoke/WeirCron/Status", now-5, now+60))), http.StatusUnauthorized},
		"for ever":          {signed(sign(private, head, fmt.Sprintf(`{"aud":%q,"nbf":%d}`, path, now-5))), http.StatusUnauthorized},
		"since ever":        {signed(sign(private, head, fmt.Sprintf(`{"aud":%q,"exp":%d}`, path, now+60))), http.StatusUnauthorized},
		"for no path":       {signed(sign(private, head, fmt.Sprintf(`{"nbf":%d,"exp":%d}`, now-5, now+60))), http.StatusUnauthorized},
		"no algorithm":      {signed(sign(private, strings.Replace(head, "EdDSA", "none", 1), claims(path, now-5, now+60))), http.StatusUnauthorized},
		"another algorithm": {signed(sign(private, strings.Replace(head, "EdDSA", "HS256", 1), claims(path, now-5, now+60))), http.StatusUnauthorized},
		"not signed at all": {signed(right[:strings.LastIndex(right, ".")+1]), http.StatusUnauthorized},
	} {
		req := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		req.Header.Set("Accept", manifestType)
		for field, values := range tc.fields {
			req.Header[field] = values
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		body, _ := io.ReadAll(w.Body)
		if w.Code != tc.want || tc.want != http.StatusOK && string(body) != "Unauthorized" {
			t.Errorf("%s: %d %s", name, w.Code, body)
		}
	}
}

func signed(tokens ...string) map[string][]string {
	return map[string][]string{"X-Restate-Signature-Scheme": {"v1"}, "X-Restate-Jwt-V1": tokens}
}
