package orderkey

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func keys(t testing.TB, text string) *Keys {
	t.Helper()
	k := &Keys{}
	if err := k.Replace([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return k
}

var (
	first  = strings.Repeat("1", 64)
	second = strings.Repeat("2", 64)
)

func refused(t testing.TB, name string, err error, says string) {
	t.Helper()
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v; want %q", name, err, says)
	}
}

func TestASignedOrderIsValidForFiveMinutes(t *testing.T) {
	k := keys(t, first)
	o := k.Sign(Order{Service: "S", Key: "k", Handler: "H", Input: `{"a":1}`}, noon)
	for _, at := range []time.Duration{-AgeMax, 0, time.Second, AgeMax} {
		if err := k.Check(&o, noon.Add(at)); err != nil {
			t.Errorf("after %v: %v", at, err)
		}
	}
	refused(t, "late", k.Check(&o, noon.Add(AgeMax+time.Millisecond)), "signed 5m0.001s ago")
	refused(t, "early", k.Check(&o, noon.Add(-AgeMax-time.Millisecond)), "signed 5m0.001s in the future")
	if other := k.Sign(Order{Service: "S", Key: "k", Handler: "H"}, noon); other.ID == o.ID {
		t.Error("two orders have one ID")
	}
}

// Whatever of an order is changed, its signature is no longer valid.
func TestNoFieldOfASignedOrderCanBeChanged(t *testing.T) {
	k := keys(t, first)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(1, 20, 60)
		o := k.Sign(Order{ID: text.Draw(t, "id"), Service: text.Draw(t, "service"), Key: text.Draw(t, "key"),
			Handler: text.Draw(t, "handler"), Input: text.Draw(t, "input"), OneWay: rapid.Bool().Draw(t, "one way")}, noon)
		if err := k.Check(&o, noon); err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(*Order){
			"id":        func(o *Order) { o.ID += "x" },
			"service":   func(o *Order) { o.Service += "x" },
			"key":       func(o *Order) { o.Key += "x" },
			"handler":   func(o *Order) { o.Handler += "x" },
			"input":     func(o *Order) { o.Input += "x" },
			"one way":   func(o *Order) { o.OneWay = !o.OneWay },
			"time":      func(o *Order) { o.AtMs++ },
			"signer":    func(o *Order) { o.SignedBy += "x" },
			"signature": func(o *Order) { o.MAC = o.MAC[:len(o.MAC)-2] },
			"no signer": func(o *Order) { o.SignedBy = "" },
			"none":      func(o *Order) { o.MAC = "" },
			"bytes that move from one field to the next": func(o *Order) {
				o.Service, o.Key = o.Service+o.Key[:1], o.Key[1:]
			},
		} {
			changed := o
			if change(&changed); changed == o {
				continue
			}
			if err := k.Check(&changed, noon); !errors.Is(err, ErrRefused) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A key is rotated without a moment at which an order is refused: the new key is added, then moved to the first line,
// and then the old key is removed.
func TestKeysAreRotatedWithoutRefusals(t *testing.T) {
	steps := []string{first, first + "\n" + second, "# rotated today\n" + second + "\n\n" + first, second}
	for i := 1; i < len(steps); i++ {
		for _, signer := range steps[i-1 : i+1] {
			for _, checker := range steps[i-1 : i+1] {
				o := keys(t, signer).Sign(Order{Service: "S", Handler: "H"}, noon)
				if err := keys(t, checker).Check(&o, noon); err != nil {
					t.Errorf("step %d: %v", i, err)
				}
			}
		}
	}
	old := keys(t, first).Sign(Order{Service: "S", Handler: "H"}, noon)
	refused(t, "removed key", keys(t, second).Check(&old, noon), "give every weir-control the same order-key-file")
	another := Random().Sign(Order{Service: "S", Handler: "H"}, noon)
	refused(t, "another process", Random().Check(&another, noon), "it is signed with key")
}

func TestKeyFilesAreStrict(t *testing.T) {
	for name, tc := range map[string]struct{ text, says string }{
		"empty":     {"\n# nothing\n", "there are 0 keys (1 to 8"},
		"short":     {first + "\nsecret\n", "the key in line 2 is 6 bytes long (32 to 512"},
		"long":      {strings.Repeat("x", 513), "the key in line 1 is 513 bytes long"},
		"too many":  {strings.Repeat(first+"\n", 9), "there are 9 keys (1 to 8"},
		"not a key": {"-----BEGIN\n", "line 1 is 10 bytes long"},
	} {
		k := keys(t, first)
		if err := k.Replace([]byte(tc.text)); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v; want %q", name, err, tc.says)
		}
		if o := k.Sign(Order{Service: "S", Handler: "H"}, noon); k.Check(&o, noon) != nil || o.SignedBy != newKey(first).name {
			t.Errorf("%s: the key before is not in force any more", name)
		}
	}
	if o := keys(t, first+"\r\n").Sign(Order{Service: "S", Handler: "H"}, noon); keys(t, first).Check(&o, noon) != nil {
		t.Error("the end of a line is a part of the key")
	}
}

// An order without a signature, or beyond its bounds, is refused with the field, the value and the bound.
func TestOrdersAreBounded(t *testing.T) {
	k := keys(t, first)
	for name, tc := range map[string]struct {
		o    Order
		says string
	}{
		"service": {Order{Handler: "H"}, "service is 0 bytes long (1 to 512)"},
		"handler": {Order{Service: "S"}, "handler is 0 bytes long"},
		"key":     {Order{Service: "S", Handler: "H", Key: strings.Repeat("k", 513)}, "key is 513 bytes long (0 to 512)"},
		"input": {Order{Service: "S", Handler: "H", Input: strings.Repeat("k", InputBytesMax+1)},
			"input is 4194305 bytes long (at most 4194304)"},
	} {
		o := k.Sign(tc.o, noon)
		refused(t, name, k.Check(&o, noon), tc.says)
	}
	refused(t, "unsigned", k.Check(&Order{ID: "1", Service: "S", Handler: "H"}, noon), "it is not signed")
}

func FuzzReplace(f *testing.F) {
	f.Add([]byte(first + "\n" + second))
	f.Add([]byte("#\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		k := keys(t, second)
		if err := k.Replace(text); err != nil && (*k.now.Load())[0].name != newKey(second).name {
			t.Error("refused keys are in force")
		}
		o := k.Sign(Order{Service: "S", Handler: "H"}, noon)
		if err := k.Check(&o, noon); err != nil {
			t.Error(err)
		}
	})
}

func FuzzCheck(f *testing.F) {
	k := keys(f, first)
	valid := k.Sign(Order{ID: "1", Service: "S", Handler: "H"}, noon)
	f.Add(valid.ID, valid.Service, valid.Key, valid.Handler, valid.Input, valid.AtMs, valid.SignedBy, valid.MAC)
	f.Fuzz(func(t *testing.T, id, service, key, handler, input string, at int64, by, mac string) {
		o := Order{ID: id, Service: service, Key: key, Handler: handler, Input: input, AtMs: at, SignedBy: by, MAC: mac}
		if err := k.Check(&o, noon); err == nil && !strings.EqualFold(o.MAC, valid.MAC) {
			t.Errorf("%+v is accepted", o)
		} else if err != nil && !errors.Is(err, ErrRefused) {
			t.Error(err)
		}
	})
}
