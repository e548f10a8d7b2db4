package bounded

import (
	"context"
	"testing"
)

// A long body takes a place, and a short body does not. A waiting call leaves its place to another call and takes it
// again afterwards, or continues without if its caller has gone.
func TestPlaces(t *testing.T) {
	places := make([]Place, heavyMax)
	for i := range places {
		if err := places[i].For(t.Context(), LightBytes+1); err != nil {
			t.Fatal(err)
		}
	}
	over, end := context.WithCancel(t.Context())
	end()
	var next, light Place
	if next.For(over, LightBytes+1) == nil || light.For(over, LightBytes) != nil {
		t.Error("places are for long bodies, and all of them are taken")
	}

	place := PlaceOf(places[0].With(t.Context()))
	place.Leave()
	if err := next.For(t.Context(), LightBytes+1); err != nil {
		t.Errorf("a place that was left: %v", err)
	}
	place.Return(over)
	if place.taken {
		t.Error("a place is taken twice")
	}
	next.Give()

	places[0] = Place{}
	if err := place.For(t.Context(), LightBytes+1); err != nil {
		t.Fatal(err)
	}
	place.Leave()
	place.Return(t.Context())
	if !place.taken || heavy.TryAcquire(1) {
		t.Error("the place is not taken again")
	}
	for i := range places {
		places[i].Give()
	}
	if !heavy.TryAcquire(heavyMax) {
		t.Fatal("places are not given back")
	}
	heavy.Release(heavyMax)
}

// A call without a place has nothing to leave.
func TestNoPlace(t *testing.T) {
	var light Place
	place := PlaceOf(light.With(t.Context()))
	place.Leave()
	place.Return(t.Context())
	place.Give()
	light.Leave()
	light.Return(t.Context())
	if place != nil || light.taken || !heavy.TryAcquire(heavyMax) {
		t.Error("a place is taken")
	}
	heavy.Release(heavyMax)
}
