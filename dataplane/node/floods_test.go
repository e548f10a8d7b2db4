package node

import (
	"net"
	"strings"
	"testing"

	attacks "github.com/weirhq/weir/shared/attack"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// Connections that send floods of single frames keep little of a node, on each of its ports; probes and others' calls
// are answered meanwhile.
func TestFloodsOfFrames(t *testing.T) {
	const limit = weirv1connect.RateLimitServiceLimitProcedure
	for port, at := range map[string]struct {
		address    func(*attacked) net.Addr
		path, kind string
	}{
		"listen":       {func(a *attacked) net.Addr { return a.Addr() }, limit, "application/json"},
		"grpc-listen":  {func(a *attacked) net.Addr { return a.GRPCAddr() }, limit, "application/grpc"},
		"admin-listen": {func(a *attacked) net.Addr { return a.AdminAddr() }, "/readyz", "application/json"},
	} {
		for name, flood := range attacks.Floods(at.path, at.kind) {
			if port == "admin-listen" && !strings.Contains(name, "streams") {
				continue // the server differs from listen's in its handlers
			}
			t.Run(port+"/"+name, func(t *testing.T) {
				a := attack(t)
				end := a.watch()
				conns := attacks.Send(t, at.address(a).String(), 32, flood)
				a.probed(t)
				attacks.Close(conns)
				end()
				a.judge(t)
			})
		}
	}
}
