package node

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// Connections over HTTP/2 whose caller takes no bytes of an answer hold no more of them than there is
// memory for, of short answers too; others, and probes, are answered.
func TestStreamsThatTakeNoBytes(t *testing.T) {
	for name, flood := range map[string]struct {
		address func(*attacked) net.Addr
		path    string
		used    func(*attacked) int64
		want    int64
	}{
		"calls":  {func(a *attacked) net.Addr { return a.Addr() }, weirv1connect.RateLimitServiceLimitProcedure, func(a *attacked) int64 { return a.bounds.calls.Used() }, callsMemoryBytes / 4},
		"probes": {func(a *attacked) net.Addr { return a.AdminAddr() }, "/readyz", func(a *attacked) int64 { return a.bounds.probes.Used() }, probeMemoryBytes / 4},
	} {
		t.Run(name, func(t *testing.T) {
			a := attack(t)
			end := a.watch()
			sent := streamsThatTakeNothing(t, flood.path)
			var begun []net.Conn
			for range 30 {
				conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", flood.address(a).String())
				if err != nil {
					t.Fatal(err)
				}
				begun = append(begun, conn)
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				_, _ = conn.Write(sent)
			}
			await.True(t, "answers that are not taken are held", func() bool { return flood.used(a) > flood.want })
			a.probed(t)
			for _, conn := range begun {
				_ = conn.Close()
			}
			end()
			a.judge(t)
		})
	}
}

// streamsThatTakeNothing is a connection's beginning: as many calls as it may have, none of which
// lets a byte of an answer's body through.
func streamsThatTakeNothing(t *testing.T, path string) []byte {
	var sent, fields bytes.Buffer
	_, _ = sent.WriteString(http2.ClientPreface)
	frames, packed := http2.NewFramer(&sent, nil), hpack.NewEncoder(&fields)
	err := frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range uint32(streamsMax) {
		fields.Reset()
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "localhost"}, {Name: ":path", Value: path},
			{Name: "content-type", Value: "application/json"},
		} {
			err = errors.Join(err, packed.WriteField(f))
		}
		err = errors.Join(err, frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: fields.Bytes(), EndHeaders: true, EndStream: true}))
	}
	if err != nil {
		t.Fatal(err)
	}
	return sent.Bytes()
}
