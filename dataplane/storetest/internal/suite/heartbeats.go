package suite

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// FullHeartbeat returns a heartbeat with a value in each field. Every figure has its own value, including figures that
// are added later.
func FullHeartbeat(t *testing.T, id string) heartbeat.Heartbeat {
	b := heartbeat.Heartbeat{NodeID: id, Region: "eu\xff", Build: "v1.2.3", TuningVersion: 7,
		StartedAtMs: 1_700_000_000_000, SentAtMs: 1_700_000_060_000, Stopped: true, Top: `{"hot":[]}`, Usage: `{"number":1}`}
	fillValue(t, reflect.ValueOf(&b.Health).Elem(), 0)
	return b
}

// fillValue fills the i-th of some values.
func fillValue(t *testing.T, v reflect.Value, i int) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fillValue(t, v.Field(i), i)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(t, v.Elem(), i)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fillValue(t, v.Index(0), i)
		fillValue(t, v.Index(1), i+1)
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]int64{"us": window.LimitMax - int64(i)}))
	case reflect.Int, reflect.Int64:
		v.SetInt(window.LimitMax - int64(i))
	case reflect.Uint64:
		v.SetUint(uint64(window.LimitMax - int64(i)))
	case reflect.String:
		v.SetString(`tuning 8: "floor" is 1.1 (0 to 1) 🙂`)
	case reflect.Uint8: // of bytes, which need not be UTF-8
		v.SetUint(uint64(0xff - i))
	case reflect.Float64:
		v.SetFloat(0.25 * float64(i+1))
	case reflect.Bool:
		v.SetBool(true)
	default:
		t.Fatalf("no example for a %v", v.Type())
	}
}

// Worded returns heartbeats in a form that can be compared, whatever they point at.
func Worded(t testing.TB, beats []heartbeat.Heartbeat) (all []string) {
	t.Helper()
	for _, b := range beats {
		health, err := json.Marshal(b.Health)
		if err != nil {
			t.Fatal(err)
		}
		b.Health = heartbeat.Health{}
		all = append(all, fmt.Sprintf("%+q %s", fmt.Sprintf("%+v", b), health))
	}
	return all
}

// Beat stores heartbeats.
func Beat(t testing.TB, s store.Settings, beats ...heartbeat.Heartbeat) {
	t.Helper()
	if err := s.Heartbeat(t.Context(), beats...); err != nil {
		t.Fatalf("%d heartbeats: %v", len(beats), err)
	}
}
