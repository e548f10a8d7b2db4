// Package flags makes kong read the settings of all of Weir's programs by the rules of package
// strict, wherever they come from: the command line, the environment, or a file.
package flags

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/shared/strict"
)

// Strict returns the option of kong.New that reads numbers and durations with package strict, and
// that refuses a mapping in which a key occurs twice. Without it kong reads 0100 as 64.
func Strict() kong.Option {
	return kong.OptionFunc(func(k *kong.Kong) error {
		defaults := kong.NewRegistry().RegisterDefaults()
		options := []kong.Option{
			kong.TypeMapper(reflect.TypeFor[time.Duration](), decoder(decodeDuration)),
			kong.KindMapper(reflect.Map, uniqueKeys{defaults.ForType(reflect.TypeFor[map[string]string]())}),
		}
		for _, of := range []struct {
			decoder
			kinds []reflect.Kind
		}{
			{decodeInt, []reflect.Kind{reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64}},
			{decodeUint, []reflect.Kind{reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64}},
			{decodeFloat, []reflect.Kind{reflect.Float32, reflect.Float64}},
		} {
			for _, kind := range of.kinds {
				options = append(options, kong.KindMapper(kind, of.decoder))
			}
		}
		for _, option := range options {
			if err := option.Apply(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// value stands for the field's name in errors, because kong puts the flag's name before it.
const value = "the value"

// text returns a number or a duration as it was written. kong takes a negative value after a blank for a short flag,
// but none of our programs has a flag that is a digit.
func text(ctx *kong.DecodeContext) (string, error) {
	if negative, ok := ctx.Scan.Peek().Value.(string); ok && negativeNumber.MatchString(negative) {
		return fmt.Sprint(ctx.Scan.Pop().Value), nil
	}
	token, err := ctx.Scan.PopValue("value")
	if err != nil {
		return "", err
	}
	return fmt.Sprint(token.Value), nil
}

var negativeNumber = regexp.MustCompile(`^-\.?[0-9]`)

// decoder reads a flag's text into its target.
type decoder func(written string, target reflect.Value) error

// Decode implements kong.Mapper.
func (d decoder) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	written, err := text(ctx)
	if err != nil {
		return err
	}
	return d(written, target)
}

func decodeDuration(written string, target reflect.Value) error {
	d, err := strict.Duration(value, written, math.MinInt64, math.MaxInt64)
	target.SetInt(int64(d))
	return err
}

func decodeInt(written string, target reflect.Value) error {
	bits := target.Type().Bits()
	n, err := strict.Int(value, written, math.MinInt64>>(64-bits), math.MaxInt64>>(64-bits))
	target.SetInt(n)
	return err
}

func decodeUint(written string, target reflect.Value) error {
	n, err := strict.Uint(value, written, 0, math.MaxUint64>>(64-target.Type().Bits()))
	target.SetUint(n)
	return err
}

func decodeFloat(written string, target reflect.Value) error {
	n, err := strict.Float(value, written, -math.MaxFloat64, math.MaxFloat64)
	target.SetFloat(n)
	return err
}

// uniqueKeys decodes a mapping with a decoder that keeps the last value of a key.
type uniqueKeys struct{ kong.Mapper }

// Decode implements kong.Mapper.
func (u uniqueKeys) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if written, ok := ctx.Scan.Peek().Value.(string); ok {
		pairs := kong.SplitEscaped(written, ctx.Value.Tag.MapSep)
		if err := checkKeys(pairs); err != nil {
			return err
		}
		for i, pair := range pairs { // kong's error would quote the pair, which may be a URL with a password
			if !strings.Contains(pair, "=") {
				return fmt.Errorf("item %d has no '=', want %s", i+1, cmp.Or(ctx.Value.Tag.PlaceHolder, "KEY=VALUE"))
			}
		}
	}
	return u.Mapper.Decode(ctx, target)
}
