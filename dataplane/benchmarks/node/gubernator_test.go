package main

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// response returns a RateLimitResp inside of a GetRateLimitsResp.
func response(status uint64, problem string) []byte {
	m := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), status)
	m = protowire.AppendVarint(protowire.AppendTag(m, 3, protowire.VarintType), 7) // remaining
	m = protowire.AppendString(protowire.AppendTag(m, 5, protowire.BytesType), problem)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), m)
}

// Only an answer that lets pass counts: a rival that fails or denies would look fast.
func TestOnlyAllowedCountsOfGubernator(t *testing.T) {
	yes, no, failed := response(0, ""), response(1, ""), response(0, "no peers")
	for _, step := range []struct {
		name   string
		answer []byte
		want   int
		fails  bool
	}{
		{"nothing", nil, 0, false},
		{"one", yes, 1, false},
		{"two", append(append([]byte(nil), yes...), yes...), 2, false},
		{"the second denied", append(append([]byte(nil), yes...), no...), 0, true},
		{"an error", failed, 0, true},
		{"cut off", yes[:len(yes)-1], 0, true},
	} {
		got, err := underLimit(step.answer)
		if (err != nil) != step.fails || err == nil && got != step.want {
			t.Errorf("%s: %d let pass, error %v; want %d, an error: %v", step.name, got, err, step.want, step.fails)
		}
	}
	if _, err := underLimit(no); !errors.Is(err, errNotAllowed) {
		t.Errorf("a denial: error %v, want %v", err, errNotAllowed)
	}
}

// For any bytes, reading an answer ends, and finds no more answers than it has bytes for.
func FuzzUnderLimit(f *testing.F) {
	f.Add(response(0, ""))
	f.Add(response(1, "no peers"))
	f.Add([]byte{0x0a, 0xff})
	f.Fuzz(func(t *testing.T, answer []byte) {
		if n, _ := underLimit(answer); n > len(answer)/2 {
			t.Errorf("%d answers in %d bytes", n, len(answer))
		}
	})
}
