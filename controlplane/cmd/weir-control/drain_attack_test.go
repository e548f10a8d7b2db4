package main

import (
	"bytes"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/shared/await"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/traces/tracestest"
)

// frozenAt forwards connections to a server until a client sends the word. From then on nothing arrives anywhere, as
// with a server that is stopped or a network that drops packets.
func frozenAt(t *testing.T, server, word string) (address string, frozen *atomic.Bool, thaw func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	frozen, thawed := new(atomic.Bool), make(chan struct{})
	forward := func(to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := from.Read(b)
			if bytes.Contains(b[:n], []byte(word)) {
				frozen.Store(true)
			}
			if frozen.Load() {
				<-thawed
				return
			}
			if n > 0 {
				if _, err := to.Write(b[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			go forward(behind, client)
			go forward(client, behind)
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	thaw = sync.OnceFunc(func() { close(thawed) })
	t.Cleanup(thaw)
	return l.Addr().String(), frozen, thaw
}

// "drain-timeout: how long a stopping weir-control waits": MySQL hangs while the lock of the migrations is released,
// for which the library uses a context without an end.
func TestDrainEndsThoughMySQLHangs(t *testing.T) { servers.TurnSQL(t, testDrainEndsThoughMySQLHangs) }

func testDrainEndsThoughMySQLHangs(t *testing.T) {
	mysql := servers.SQLForTest(t)
	mysql.CreateForTest(t, "weir")
	dsn := mysql.DSN("weir")
	before, rest, _ := strings.Cut(dsn, "@tcp(")
	server, after, _ := strings.Cut(rest, ")")
	address, frozen, thaw := frozenAt(t, server, "RELEASE_LOCK")
	t.Setenv("WEIR_MYSQL_DSN", before+"@tcp("+address+")"+after)
	r := startControl(t, "--restate-ingress", "http://127.0.0.1:1", "--restate-admin", "http://127.0.0.1:1", "--drain-timeout", "2s")
	await.True(t, "it has migrated", frozen.Load)
	r.stop()
	select {
	case code := <-r.exited:
		t.Logf("exit %d", code)
	case <-time.After(20 * time.Second):
		t.Errorf("drain-timeout is 2s, and it runs 20s later:\n%s", r.log.String())
		thaw()
		t.Logf("MySQL is back: exit %d", <-r.exited)
	}
}

// "Exit codes: 0 after a drain": nothing depends on spans, so a collector that hangs does not turn a drain into a
// failure.
func TestAHangingCollectorFailsNoDrain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	t.Setenv("WEIR_MYSQL_DSN", "weir:s3cret@tcp(127.0.0.1:1)/weir")
	r := startControl(t, "--restate-ingress", "http://127.0.0.1:1", "--restate-admin", "http://127.0.0.1:1", "--drain-timeout", "2s")
	ask := connect.NewRequest(&controlv1.FleetRequest{})
	ask.Header().Set("Traceparent", tracestest.Parent)
	_, err = r.client.Fleet(t.Context(), ask)
	t.Log(err)
	r.http.Transport.(*http.Transport).CloseIdleConnections()
	began := time.Now()
	r.stop()
	if code := <-r.exited; code != exitOK {
		t.Errorf("exit %d after %v", code, time.Since(began).Round(100*time.Millisecond))
	}
}
