package handlers

import (
	"reflect"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/restate/orderkey"
)

// Each handler has a JSON schema of its input and output for Restate, in which types have their names without the
// package. If two types had the same name, the schema would describe only one of them.
func TestNoSchemaHasTwoTypesOfOneName(t *testing.T) {
	for _, v := range []any{
		State{}, Tick{}, StartRequest{}, controlplane.By{}, orderkey.Order{}, audit.Entry{},
		rollout.Begin{}, rollout.Rollout{}, RolloutTimer{}, rollout.Order{},
		rollout.Start{}, RolloutRollBack{}, RolloutsRepair{}, rollout.Lock{}, rollout.Summary{},
		RetirementStart{}, RetirementApprove{}, RetirementTimer{}, retire.Retirement{}, retire.Summary{},
	} {
		names := map[string]reflect.Type{}
		wantOneOfEachName(t, reflect.TypeOf(v), reflect.TypeOf(v), names)
	}
}

func wantOneOfEachName(t *testing.T, schema, of reflect.Type, names map[string]reflect.Type) {
	t.Helper()
	if of.PkgPath() != "" {
		switch same, known := names[of.Name()]; {
		case known && same != of:
			t.Errorf("the schema of %v has %v and %v", schema, same, of)
			return
		case known:
			return
		}
		names[of.Name()] = of
	}
	switch of.Kind() {
	case reflect.Map:
		wantOneOfEachName(t, schema, of.Key(), names)
		wantOneOfEachName(t, schema, of.Elem(), names)
	case reflect.Array, reflect.Pointer, reflect.Slice:
		wantOneOfEachName(t, schema, of.Elem(), names)
	case reflect.Struct:
		for i := range of.NumField() {
			wantOneOfEachName(t, schema, of.Field(i).Type, names)
		}
	default:
	}
}
