// Package orderkey signs the orders that weir-control sends to its own handlers through Restate, and checks them.
//
// Restate's ingress has no authentication, and it admits web pages of any origin. A handler therefore cannot rely on
// the name of an operator in a request: it needs proof that weir-control, which has authenticated the operator, made
// the request. The proof is an HMAC-SHA256 over the whole order and its time, with a key that only weir-control has.
package orderkey

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// AgeMax is how long an order is valid: the longest time between its signature and its check. The same bound holds
	// for orders from a clock that is ahead.
	AgeMax = 5 * time.Minute

	// InputBytesMax bounds Order.Input.
	InputBytesMax = 4 << 20

	// KeysMax is the largest number of keys in a file.
	KeysMax = 8

	keyBytesLeast = 32  // of a key's text; openssl rand -hex 32 prints 64
	keyBytesMost  = 512 // of a key's text
	nameBytesMax  = 512 // of an order's id, service, key and handler each
)

// ErrRefused is wrapped by errors about an order that weir-control has not signed, or that has
// expired.
var ErrRefused = errors.New("order refused")

// Order is a call of a handler, as weir-control signs it.
type Order struct {
	// ID is unique. Restate executes orders with the same ID, service, key and handler once: an order that is sent again,
	// by weir-control or by somebody who copied it, has no second effect.
	ID string `json:"id"`

	Service string `json:"service"`
	Key     string `json:"key"` // key of the object
	Handler string `json:"handler"`
	Input   string `json:"input"`             // JSON; empty for a handler without input
	OneWay  bool   `json:"one_way,omitempty"` // the caller does not wait for the handler

	AtMs     int64  `json:"at_ms"`     // time of the signature, Unix ms by the clock of weir-control
	SignedBy string `json:"signed_by"` // name of the key
	MAC      string `json:"mac"`       // hex
}

// Keys are the signing keys of a weir-control. The first key signs, and all keys are accepted. Keys
// may be used concurrently.
type Keys struct {
	now atomic.Pointer[[]key]
}

type key struct {
	name   string
	secret []byte
}

// Random returns a key that only this process has. Only this process accepts the orders that the
// key signs.
func Random() *Keys {
	k := &Keys{}
	k.now.Store(&[]key{newKey(rand.Text() + rand.Text())})
	return k
}

// Replace replaces the keys by those in the content of a file. After an error, the previous keys
// stay. The file has one key per line; it ignores empty lines and lines that begin with #.
func (k *Keys) Replace(text []byte) error {
	var keys []key
	for number, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if len(line) < keyBytesLeast || len(line) > keyBytesMost {
			return fmt.Errorf("the key in line %d is %d bytes long (%d to %d: openssl rand -hex 32 makes one)", number+1,
				len(line), keyBytesLeast, keyBytesMost)
		}
		keys = append(keys, newKey(line))
	}
	if len(keys) < 1 || len(keys) > KeysMax {
		return fmt.Errorf("there are %d keys (1 to %d, one a line: openssl rand -hex 32 makes one)", len(keys), KeysMax)
	}
	k.now.Store(&keys)
	return nil
}

func newKey(text string) key {
	name := sha256.Sum256([]byte("name of an order key\n" + text))
	return key{name: hex.EncodeToString(name[:4]), secret: []byte(text)}
}

// Sign returns the order with a time and a signature, and with a random ID if it has none.
func (k *Keys) Sign(o Order, now time.Time) Order {
	first := (*k.now.Load())[0]
	if o.ID == "" {
		o.ID = rand.Text()
	}
	o.AtMs, o.SignedBy = now.UnixMilli(), first.name
	o.MAC = hex.EncodeToString(o.mac(first.secret))
	return o
}

// Check returns an error that wraps ErrRefused if an order is not valid at the time now.
func (k *Keys) Check(o *Order, now time.Time) error {
	if o.MAC == "" || o.SignedBy == "" {
		return fmt.Errorf("%w: it is not signed; only weir-control can sign orders", ErrRefused)
	}
	for _, name := range []struct {
		field, value string
		least        int
	}{{"id", o.ID, 1}, {"service", o.Service, 1}, {"key", o.Key, 0}, {"handler", o.Handler, 1}} {
		if n := len(name.value); n < name.least || n > nameBytesMax {
			return fmt.Errorf("%w: %s is %d bytes long (%d to %d)", ErrRefused, name.field, n, name.least, nameBytesMax)
		}
	}
	if len(o.Input) > InputBytesMax {
		return fmt.Errorf("%w: input is %d bytes long (at most %d)", ErrRefused, len(o.Input), InputBytesMax)
	}
	secret := k.secret(o.SignedBy)
	if secret == nil {
		return fmt.Errorf("%w: it is signed with key %.16q, and this weir-control has %s: give every weir-control the same "+
			"order-key-file; after a restart without one, repeat the order", ErrRefused, o.SignedBy, k.names())
	}
	given, err := hex.DecodeString(o.MAC)
	if err != nil || !hmac.Equal(given, o.mac(secret)) {
		return fmt.Errorf("%w: the signature does not match the order", ErrRefused)
	}
	switch age := now.Sub(time.UnixMilli(o.AtMs)).Round(time.Millisecond); {
	case age > AgeMax:
		return fmt.Errorf("%w: it was signed %v ago (at most %v): repeat it", ErrRefused, age, AgeMax)
	case age < -AgeMax:
		return fmt.Errorf("%w: it was signed %v in the future (at most %v): run NTP on every machine of weir-control",
			ErrRefused, -age, AgeMax)
	}
	return nil
}

func (k *Keys) secret(name string) []byte {
	for _, one := range *k.now.Load() {
		if one.name == name {
			return one.secret
		}
	}
	return nil
}

func (k *Keys) names() string {
	var names []string
	for _, one := range *k.now.Load() {
		names = append(names, one.name)
	}
	return strings.Join(names, ", ")
}

// mac covers every field except itself. It hashes the length of each field, so that bytes can't
// move from one field to the next.
func (o *Order) mac(secret []byte) []byte {
	h := hmac.New(sha256.New, secret)
	oneWay := "0"
	if o.OneWay {
		oneWay = "1"
	}
	for _, field := range []string{"weir order 1", o.ID, o.Service, o.Key, o.Handler, o.Input, oneWay, o.SignedBy} {
		_ = binary.Write(h, binary.BigEndian, uint64(len(field))) // a hash never returns an error
		_, _ = io.WriteString(h, field)
	}
	_ = binary.Write(h, binary.BigEndian, o.AtMs)
	return h.Sum(nil)
}
