package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/attack"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// attackBytesMax is the memory that one address may add to an idle server.
const attackBytesMax = 150 << 20

// Connections without a valid request use little memory and block no other caller.
func TestFloodsOfFrames(t *testing.T) {
	for name, flood := range attack.Floods(controlv1connect.ControlServiceFleetProcedure, "application/json") {
		t.Run(name, func(t *testing.T) {
			url := served(t, Config{RequireTokens: true, Tokens: &ring{}})
			during := attack.Watch()
			conns := attack.Send(t, strings.TrimPrefix(url, "http://"), connectionsMax/4, flood)
			await.NoError(t, "a probe is answered", func() error {
				if status, body := get(t, url+"/readyz", nil); status != http.StatusOK {
					return fmt.Errorf("%d %s", status, body)
				}
				return nil
			})
			attack.Close(conns)
			during.Small(t, attackBytesMax)
		})
	}
}
