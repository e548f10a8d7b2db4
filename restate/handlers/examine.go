package handlers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/weirhq/weir/controlplane/watch"
)

// Examine has the doctor's checks of Restate: that it answers, has the present handlers, and cannot be reached from
// public networks.
type Examine struct {
	Client      *Client // of the ingress
	Admin       *Admin
	URI         func() string // of the handlers, as registered
	Fingerprint string
	Signed      bool // the handlers accept only requests that Restate signed
}

// Checks implements watch.Examiner.
func (e Examine) Checks(ctx context.Context) []watch.Check {
	checks := []watch.Check{e.ingress(ctx), e.registered(ctx)}
	for _, url := range e.Client.at.urls {
		checks = append(checks, exposure(ctx, "ingress's address", url, "ingress.bind-port and bind-ip"))
	}
	for _, url := range e.Admin.at.urls {
		checks = append(checks, exposure(ctx, "admin's address", url, "admin.bind-port and bind-ip"))
	}
	return append(checks, e.identity())
}

func (e Examine) ingress(ctx context.Context) watch.Check {
	const name = "ingress"
	if _, err := e.Client.Status(ctx, CleanupJob); err != nil {
		return watch.Check{Name: name, Result: watch.CheckFail, What: err.Error(),
			Do: "Start restate-server, or correct --restate-ingress."}
	}
	return watch.Check{Name: name, Result: watch.CheckOK, What: "Restate answers at " +
		e.Client.at.String()}
}

func (e Examine) registered(ctx context.Context) watch.Check {
	const name = "handlers"
	var answer struct {
		Deployments []struct {
			URI      string            `json:"uri"`
			Metadata map[string]string `json:"metadata"`
		} `json:"deployments"`
	}
	if _, err := e.Admin.call(ctx, "to list deployments", http.MethodGet, "/deployments", nil, &answer); err != nil {
		return watch.Check{Name: name, Result: watch.CheckFail, What: err.Error(),
			Do: "Start restate-server, or correct --restate-admin."}
	}
	for _, d := range answer.Deployments {
		if !sameURL(d.URI, e.URI()) {
			continue
		}
		if have := d.Metadata[fingerprintKey]; have != e.Fingerprint {
			return watch.Check{
				Name: name, Result: watch.CheckFail,
				What: fmt.Sprintf("Restate has handlers of another build at %s (%.40q, ours are %s)", d.URI, have, e.Fingerprint),
				Do:   "Stop the other weir-control at that address, then restart this weir-control: it registers its own handlers.",
			}
		}
		return watch.Check{Name: name, Result: watch.CheckOK, What: "registered at " + d.URI +
			", fingerprint " + e.Fingerprint}
	}
	return watch.Check{
		Name: name, Result: watch.CheckFail, What: "Restate has no deployment at " + e.URI(),
		Do: "weir-control registers within seconds. If this stays, see its log and --handlers-url.",
	}
}

// sameURL compares URLs as Restate does, which adds a slash to a URL without a path.
func sameURL(a, b string) bool {
	ua, errA := url.Parse(a)
	ub, errB := url.Parse(b)
	if errA != nil || errB != nil {
		return a == b
	}
	return *ua.JoinPath("/") == *ub.JoinPath("/")
}

func (e Examine) identity() watch.Check {
	if e.Signed {
		return watch.Check{Name: "request identity", Result: watch.CheckOK,
			What: "only requests that Restate signed are taken"}
	}
	return watch.Check{
		Name: "request identity", Result: watch.CheckWarn,
		What: "any client that reaches the handlers' port can run them",
		Do: "weir-control identity-key --out FILE makes a key: set request-identity-private-key-pem-file at Restate to " +
			"the file, and restate-identity-key here to the key that it prints.",
	}
}

// exposure checks, as far as an address can show, whether strangers can reach a port that requires no credentials.
func exposure(ctx context.Context, name, text, settings string) watch.Check {
	u, err := url.Parse(text)
	if err != nil {
		return watch.Check{Name: name, Result: watch.CheckFail, What: "it is not a URL", Do: "Correct it."}
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return watch.Check{Name: name, Result: watch.CheckFail, What: err.Error(),
			Do: "Correct its name, or the resolver."}
	}
	for _, a := range addresses {
		if public(a) {
			return watch.Check{
				Name: name, Result: watch.CheckFail,
				What: fmt.Sprintf("%s is a public address, and Restate has no authentication", a.Unmap()),
				Do:   "Bind Restate to loopback or a private network (" + settings + "), and let a firewall close the port.",
			}
		}
	}
	return watch.Check{Name: name, Result: watch.CheckOK,
		What: u.Host + " is on loopback or a private network"}
}

func public(a netip.Addr) bool {
	a = a.Unmap()
	return !a.IsLoopback() && !a.IsPrivate() && !a.IsLinkLocalUnicast() &&
		!netip.MustParsePrefix("100.64.0.0/10").Contains(a)
}
