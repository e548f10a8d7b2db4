package wire

import (
	"encoding/json"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

func field(number protowire.Number, value string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value))
}

// Text that limited callers choose is read with any bytes. Everything else is read as usual.
func TestTextOfCallersMayBeAnyBytes(t *testing.T) {
	entry := field(1, "ua\xff") + field(2, "\xfe\x00")
	envoys := field(1, "edge") + field(2, field(1, entry)+"\x1a\x02\x08\x07") + "\x18\x05"
	call := new(rlsv3.RateLimitRequest)
	if err := Unmarshal([]byte(envoys), call); err != nil {
		t.Fatal(err)
	}
	d := call.Descriptors[0]
	if e := d.Entries[0]; e.Key != "ua\xff" || e.Value != "\xfe\x00" || call.Domain != "edge" || call.HitsAddend != 5 || d.HitsAddend.GetValue() != 7 {
		t.Errorf("read %q: %q, %q", call, e.Key, e.Value)
	}
	many := new(weirv1.LimitManyRequest)
	if err := Unmarshal([]byte(field(1, field(1, "w")+field(3, "\xff"))+field(1, field(3, "b"))), many); err != nil {
		t.Fatal(err)
	}
	if r := many.Requests; len(r) != 2 || r[0].Identifier != "\xff" || r[0].Workspace != "w" || r[1].Identifier != "b" {
		t.Errorf("read %q", r)
	}
	stream := new(weirv1.LimitStreamRequest)
	if err := Unmarshal([]byte(field(2, field(2, field(3, "\xff")))), stream); err != nil || stream.GetReserve().GetRequests()[0].GetIdentifier() != "\xff" {
		t.Errorf("a message of a stream: %v, %q", err, stream)
	}
}

// Text of the configuration, such as a workspace, has to be UTF-8; a message that is cut short is refused.
func TestOtherTextHasToBeUTF8(t *testing.T) {
	for _, b := range []string{field(1, "\xff"), field(1, "\xff") + field(3, "\xff"), field(3, "\xff")[:2], "\x1a", "\x0b"} {
		if err := Unmarshal([]byte(b), new(weirv1.LimitRequest)); err == nil {
			t.Errorf("%x is read", b)
		}
	}
	for text, want := range map[string]string{`{"workspace":"\ud800"}`: "workspace", `{"\ud800":1}`: "", "{\"\xff\":1}": "", `{"identifier":"\ud80`: "", `{"identifier":"\ud800","limit":"\ud800"}`: ""} {
		if err := UnmarshalJSON([]byte(text), new(weirv1.LimitRequest)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that names %q", text, err, want)
		}
	}
	if err := UnmarshalJSON([]byte(`{"costs":["\ud800"]}`), new(weirv1.SettleRequest)); err == nil {
		t.Error("half a pair is read as a number")
	}
}

// Messages with valid text are read as protobuf reads them. Messages with invalid text are rejected only if they are
// malformed otherwise, and their fields have the bytes that were sent.
func FuzzUnmarshal(f *testing.F) {
	entry := field(1, "a\xff") + field(2, "b")
	f.Add([]byte(field(1, "edge") + field(2, field(1, entry)) + field(2, "\x20\x01") + "\x18\x05"))
	f.Add([]byte(field(1, "\xff")))
	f.Add([]byte{0x0b, 0x0c})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, want := new(rlsv3.RateLimitRequest), new(rlsv3.RateLimitRequest)
		err, wantErr := Unmarshal(b, got), proto.Unmarshal(b, want)
		if wantErr == nil && (err != nil || !proto.Equal(got, want)) {
			t.Errorf("%x: %v, %v; protobuf reads %v", b, got, err, want)
		}
		if err != nil || wantErr == nil {
			return
		}
		odd := false
		for _, d := range got.Descriptors {
			for _, e := range d.Entries {
				odd = odd || !json.Valid([]byte(`"`+e.Key+e.Value+`"`)) || strings.ToValidUTF8(e.Key+e.Value, "") != e.Key+e.Value
				e.Key, e.Value = "", ""
			}
		}
		if _, err := proto.Marshal(got); err != nil || !odd {
			t.Errorf("%x: protobuf refuses it (%v), and it is read as %v (%v)", b, wantErr, got, err)
		}
	})
}

// A JSON string is decoded as Go's decoder does if it is Unicode text, and differently from each other if they are not.
func FuzzString(f *testing.F) {
	for _, s := range []string{`""`, `"a\n\"\\\/\b\f\r\t"`, `"\ud83d\ude00"`, `"\ud800"`, `"\ude00\ud83d"`, `"\ud83d\u0041"`, "\"\xff\"", `"�"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, literal string) {
		if !json.Valid([]byte(literal)) || literal[0] != '"' || literal[len(literal)-1] != '"' {
			return
		}
		var want string
		_ = json.Unmarshal([]byte(literal), &want)
		got, unicode := String([]byte(literal))
		if unicode && got != want || unicode != (strings.ToValidUTF8(got, "") == got) {
			t.Errorf("%s is %q (%v), want %q", literal, got, unicode, want)
		}
		if !unicode && strings.ReplaceAll(strings.ToValidUTF8(got, ""), "�", "") != strings.ReplaceAll(want, "�", "") {
			t.Errorf("%s is %q, and Go reads %q", literal, got, want)
		}
	})
}

// A JSON message of Unicode text is read as protojson reads it.
func FuzzUnmarshalJSON(f *testing.F) {
	for _, s := range []string{`{"identifier":"\ud800","limit":"3"}`, `{"identifier":"\ud83d\ude00"}`, "{\"identifier\":\"\xff\",\"workspace\":\"w\"}", `{"workspace":"\udc00"}`, `{"identifier":7}`, `[]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, want := new(weirv1.LimitRequest), new(weirv1.LimitRequest)
		err, wantErr := UnmarshalJSON([]byte(text), got), protojson.Unmarshal([]byte(text), want)
		if wantErr == nil && (err != nil || !proto.Equal(got, want)) {
			t.Errorf("%q: %v, %v; protojson reads %v", text, got, err, want)
		}
		if err == nil && wantErr != nil && strings.ToValidUTF8(got.Identifier, "") == got.Identifier {
			t.Errorf("%q: read as %v, and protojson says %v", text, got, wantErr)
		}
	})
}
