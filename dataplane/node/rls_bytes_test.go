package node

import (
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane/node/rls"
	kuadrantv1 "github.com/weirhq/weir/shared/gen/proto/kuadrant/service/ratelimit/v1"
)

// rawCodec sends bytes as they are: Envoy, in C++, sends strings that are not UTF-8.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (rawCodec) Unmarshal(b []byte, v any) error { return proto.Unmarshal(b, v.(proto.Message)) }

func stringField(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

// envoyBytes encodes a call with a descriptor of one entry for each pair of a key and a value.
func envoyBytes(domain string, words ...string) []byte {
	call := stringField(1, []byte(domain))
	for i := 0; i < len(words); i += 2 {
		entry := append(stringField(1, []byte(words[i])), stringField(2, []byte(words[i+1]))...)
		call = append(call, stringField(2, stringField(1, entry))...)
	}
	return call
}

// rawEnvoy calls a node with these rules, with messages as they are.
func rawEnvoy(t *testing.T, rules string) (call func(procedure string, message []byte, answer proto.Message) error) {
	t.Helper()
	conn, _, _ := startRLS(t, rules)
	return func(procedure string, message []byte, answer proto.Message) error {
		return conn.Invoke(t.Context(), procedure, message, answer, grpc.ForceCodec(rawCodec{}))
	}
}

const bytesRules = `
domain: edge
descriptors:
  - {key: ua, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: ip, rate_limit: {unit: year, requests_per_unit: 1000}}
`

// A header with any bytes is counted separately from all others, and the other descriptors are charged. This also holds
// for calls that protobuf reads, because a descriptor has its own hits.
func TestHeadersOfAnyBytesAreCounted(t *testing.T) {
	call := rawEnvoy(t, bytesRules)
	values := []string{"Mozilla", "Mozilla\xff", "Mozilla\xfe", "Mozilla%FF", "caf\xe9", "café", "\x00", "", "\xed\xa0\x80", strings.Repeat("\xff", 60<<10)}
	ownHits := stringField(2, append(stringField(1, append(stringField(1, []byte("other")), stringField(2, []byte("\xff"))...)), "\x1a\x02\x08\x02"...))
	charged := uint32(0)
	for _, more := range [][]byte{nil, ownHits} {
		for _, value := range values {
			value += string(more[:min(len(more), 1)]) // names of its own
			for _, want := range []rlsv3.RateLimitResponse_Code{rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT} {
				answer := new(rlsv3.RateLimitResponse)
				if err := call(rls.Procedure, append(envoyBytes("edge", "ip", "1", "ua", value), more...), answer); err != nil {
					t.Errorf("%.20q: %v", value, err)
					continue
				}
				if answer.OverallCode != want {
					t.Errorf("%.20q: %v, want %v", value, answer, want)
				}
				if want == rlsv3.RateLimitResponse_OK {
					charged++
				}
				if left := answer.Statuses[0].LimitRemaining; want == rlsv3.RateLimitResponse_OK && left != 1000-charged {
					t.Errorf("%.20q: %d are left beside it, want %d", value, left, 1000-charged)
				}
			}
		}
	}
}

// The same holds of all calls of Kuadrant's.
func TestKuadrantsHeadersOfAnyBytesAreCounted(t *testing.T) {
	call := rawEnvoy(t, bytesRules)
	over := func(value string) bool {
		answer := new(rlsv3.RateLimitResponse)
		if err := call(rls.CheckProcedure, envoyBytes("edge", "ua", value), answer); err != nil {
			t.Errorf("check %q: %v", value, err)
		}
		return answer.OverallCode == rlsv3.RateLimitResponse_OVER_LIMIT
	}
	if err := call(rls.ReportProcedure, envoyBytes("edge", "ua", "caf\xe9"), new(rlsv3.RateLimitResponse)); err != nil || !over("caf\xe9") || over("caf\xe8") {
		t.Errorf("report: %v", err)
	}
	one := func(value string) []byte {
		return protowire.AppendVarint(append(envoyBytes("edge", "ua", value), 3<<3), 1)
	}
	for _, value := range []string{"r\xff", strings.Repeat("r", 60<<10)} {
		reserved := new(kuadrantv1.ReserveResponse)
		if err := call(rls.ReserveProcedure, one(value), reserved); err != nil || reserved.Code != rlsv3.RateLimitResponse_OK || reserved.ReservationId == "" || !over(value) {
			t.Errorf("reserve: %v, %v", reserved, err)
		}
		commit := protowire.AppendVarint(append(append(envoyBytes("edge", "ua", value), stringField(3, []byte(reserved.ReservationId))...), 4<<3), 1)
		committed := new(kuadrantv1.CommitResponse)
		if err := call(rls.CommitProcedure, commit, committed); err != nil || !committed.ReservationReleased || !over(value) {
			t.Errorf("commit: %v, %v", committed, err)
		}
	}
}
