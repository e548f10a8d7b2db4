package dataplane

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// Health has every figure of a heartbeat, in its unit. The exceptions are figures of a relay, and problems with a
// node's surroundings, which the process that runs the limiter reports, and the evidence about a trial of limits, which
// the control plane adds up.
func TestHealthHasEveryFigure(t *testing.T) {
	var f heartbeat.Health
	fields := reflect.ValueOf(&f).Elem()
	for i := range fields.NumField() {
		switch v := fields.Field(i).Addr().Interface().(type) {
		case *int64:
			*v = int64(i + 1)
		case *float64:
			*v = 1.5
		case *string:
			*v = "problem"
		case **int64:
			*v = new(int64)
			**v = int64(i + 1)
		case **heartbeat.Relay, **heartbeat.Limits, *[]string:
		default:
			t.Fatalf("%T", v)
		}
	}
	h := healthOf(&f)
	got := reflect.ValueOf(h)
	if want := fields.NumField() - 3; got.NumField() != want {
		t.Errorf("%d fields, a heartbeat has %d", got.NumField(), want)
	}
	for i := range got.NumField() {
		if got.Field(i).IsZero() {
			t.Errorf("%s is lost", got.Type().Field(i).Name)
		}
	}
	if h.Denied != f.DeniedTotal || h.ReplayedAt.UnixMilli() != f.ReplayedAtMs || h.SharedKeys != *f.SharedKeys ||
		h.DecisionP99 != 1500*time.Nanosecond {
		t.Errorf("%+v of %+v", h, f)
	}
	if none := healthOf(&heartbeat.Health{}); none.SharedKeys != -1 || !none.ReplayedAt.IsZero() {
		t.Errorf("%+v", none)
	}
}

// The answers of a Limiter have only types of this package and of the standard library. So embedders need no other
// page to read an answer.
func TestAnswersAreOfThisPackage(t *testing.T) {
	this := reflect.TypeFor[Limiter]().PkgPath()
	seen := map[reflect.Type]bool{}
	var look func(path string, at reflect.Type)
	look = func(path string, at reflect.Type) {
		if seen[at] {
			return
		}
		seen[at] = true
		if pkg := at.PkgPath(); pkg != "" && pkg != this {
			if strings.HasPrefix(pkg, strings.TrimSuffix(this, "dataplane")) {
				t.Errorf("%s is a %s", path, at)
			}
			return
		}
		switch at.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
			look(path, at.Elem())
		case reflect.Struct:
			for i := range at.NumField() {
				if f := at.Field(i); f.IsExported() {
					look(path+"."+f.Name, f.Type)
				}
			}
		}
	}
	for _, of := range []reflect.Type{reflect.TypeFor[*Limiter](), reflect.TypeFor[*Handle](), reflect.TypeFor[*Allowance]()} {
		for i := range of.NumMethod() {
			m := of.Method(i)
			for out := range m.Type.NumOut() {
				look(m.Name, m.Type.Out(out))
			}
		}
	}
}
