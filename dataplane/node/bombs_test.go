package node

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// zipped compresses before, n times repeated, and after. A gzip file can have several members, so the repeated text is
// compressed once, in larger pieces, and copied.
func zipped(before, repeated, after string, n int) []byte {
	member := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		return b.Bytes()
	}
	body := member(before)
	if n > 0 {
		each := max(1, min(n, 1<<20/len(repeated)))
		body = append(body, bytes.Repeat(member(strings.Repeat(repeated, each)), n/each)...)
		body = append(body, member(strings.Repeat(repeated, n%each))...)
	}
	return append(body, member(after)...)
}

func frame(flags byte, message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message))), message...)
}

// bombs are bodies of some kilobytes that are millions of bytes, or of items, when they are unpacked
// and decoded.
func bombs() map[string]struct {
	path, kind string
	body       []byte
} {
	long := strings.Repeat("x", 1<<20)
	health := "/grpc.health.v1.Health/Check"
	many := weirv1connect.RateLimitServiceLimitManyProcedure
	return map[string]struct {
		path, kind string
		body       []byte
	}{
		"hundreds of megabytes for health by JSON":     {health, "application/json", zipped(`{"service":"`, long, `"}`, 300)},
		"hundreds of megabytes for health by protobuf": {health, "application/proto", zipped("\x0a\xff\xff\xff\xff\x03", long, "", 300)},
		"hundreds of megabytes for health by gRPC":     {health, "application/grpc", frame(1, zipped("\x0a\xff\xff\xff\xff\x03", long, "", 300))},
		"empty items by protobuf":                      {many, "application/proto", zipped("", "\x0a\x00", "", 2_600_000)},
		"empty items by gRPC":                          {many, "application/grpc", frame(1, zipped("", "\x0a\x00", "", 2_600_000))},
		"empty items by JSON":                          {many, "application/json", zipped(`{"requests":[{}`, ",{}", "]}", 1_700_000)},
		"empty items in a stream by gRPC":              {streamProcedure, "application/grpc", frame(1, zipped("\x12\xf0\xa8\x02", "\x12\x00", "", 19_000))},
		"empty items in a stream by JSON":              {streamProcedure, "application/connect+json", frame(0, []byte(`{"reserve":{"requests":[{}`+strings.Repeat(",{}", 13_000)+`]}}`))},
		"empty items by gRPC in capitals":              {many, "Application/GRPC", frame(1, zipped("", "\x0a\x00", "", 500_000))},
		"empty items by JSON in capitals":              {many, "application/JSON", zipped(`{"requests":[{}`, ",{}", "]}", 250_000)},
		"white space":                                  {many, "application/json", zipped("", strings.Repeat(" ", 1<<10), minimal, 5000)},
		"nested arrays":                                {many, "application/json", zipped(`{"requests":[`, strings.Repeat("[", 1<<10), "", 5000)},
		"fields that are not known":                    {many, "application/proto", zipped("", "\xf8\x01\x01", "", 1_700_000)},
		"descriptors":                                  {rls.Procedure, "application/grpc", frame(1, zipped("", "\x12\x00", "", 2_600_000))},
		"descriptors of a reservation":                 {rls.ReserveProcedure, "application/grpc", frame(1, zipped("", "\x12\x00", "", 2_600_000))},
		"items of a route":                             {routes.Paths["multiLimit"], "application/json", zipped("[{}", ",{}", "]", 1_700_000)},
	}
}

// Some kilobytes that unpack or decode to millions of bytes are refused without them, on each port
// and each wire, health included; meanwhile probes and others' calls are answered.
func TestBombs(t *testing.T) {
	for name, bomb := range bombs() {
		t.Run(name, func(t *testing.T) {
			a := attack(t)
			end := a.watch()
			var throwing sync.WaitGroup
			for range 8 {
				throwing.Go(func() {
					for range 2 {
						for _, base := range []string{a.base, a.adminBase} {
							throw(t, http1Client(t), base+bomb.path, bomb.kind, bomb.body)
						}
						if bomb.kind == "application/grpc" {
							throw(t, http2Client(t), a.grpcBase+bomb.path, bomb.kind, bomb.body)
						}
					}
				})
			}
			a.probed(t)
			throwing.Wait()
			end()
			a.judge(t)
		})
	}
}

func throw(t testing.TB, client *http.Client, url, kind string, body []byte) {
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	r.Header.Set("Content-Type", kind)
	r.Header.Set("TE", "trailers")
	if strings.EqualFold(kind, "application/grpc") {
		r.Header.Set("Grpc-Encoding", "gzip")
	} else {
		r.Header.Set("Content-Encoding", "gzip")
	}
	response, err := client.Do(r)
	if err != nil {
		return // cut off, as it may be
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(response.Body)
	if status := response.Header.Get("Grpc-Status") + response.Trailer.Get("Grpc-Status"); response.StatusCode == http.StatusOK && (status == "" || status == "0") {
		t.Errorf("%s is answered: %.200s", url, answer)
	}
}
