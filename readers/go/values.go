package esdb

import (
	"fmt"
	"math"
	"math/big"
	"strings"
)

// Decimal is a decimal number: Unscaled / 10^Scale.
type Decimal struct {
	Unscaled *big.Int
	Scale    int
}

// String returns the number with exactly Scale digits behind the point; if Scale is negative, or the number is smaller
// than 0.000001, as digits with an exponent. That is how Python and Java write decimals.
func (d Decimal) String() string {
	digits := new(big.Int).Abs(d.Unscaled).String()
	sign := ""
	if d.Unscaled.Sign() < 0 {
		sign = "-"
	}
	exponent := len(digits) - 1 - d.Scale
	switch {
	case d.Scale < 0 || exponent < -6:
		if len(digits) > 1 {
			digits = digits[:1] + "." + digits[1:]
		}
		return fmt.Sprintf("%s%sE%+d", sign, digits, exponent)
	case d.Scale == 0:
		return sign + digits
	case d.Scale >= len(digits):
		digits = strings.Repeat("0", d.Scale-len(digits)+1) + digits
	}
	point := len(digits) - d.Scale
	return sign + digits[:point] + "." + digits[point:]
}

// Interval is a number of months, days and nanoseconds, each with a sign of its own.
type Interval struct {
	Months, Days int32
	Nanoseconds  int64
}

// Pair is a key of a map and its item.
type Pair struct{ Key, Value any }

// fromBits converts a number of the shape INTS to the value of a type.
func (t *Type) fromBits(number int64) any {
	switch t.Class {
	case Bool:
		return number != 0
	case Uint:
		return uint64(number)
	case Float16:
		return halfFloat(uint16(number))
	case Float32:
		return math.Float32frombits(uint32(number))
	case Float64:
		return math.Float64frombits(uint64(number))
	}
	return number
}

// halfFloat returns the number that 16 bits of IEEE 754 stand for.
func halfFloat(bits uint16) float32 {
	sign := uint32(bits>>15) << 31
	exponent, fraction := uint32(bits>>10&31), uint32(bits&1023)
	switch exponent {
	case 31: // infinity, NaN
		return math.Float32frombits(sign | 255<<23 | fraction<<13)
	case 0: // zero, and numbers below the normal ones
		small := float32(fraction) / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(small))
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// fromWords converts the words of the shape WIDE, the lowest first, to the value of a type.
func (t *Type) fromWords(words []int64) any {
	if t.Class == IntervalOf {
		return Interval{int32(words[0]), int32(words[0] >> 32), words[1]}
	}
	top := len(words) - 1
	number := big.NewInt(words[top]) // the sign is in the highest word
	for i := top - 1; i >= 0; i-- {
		number.Lsh(number, 64)
		number.Add(number, new(big.Int).SetUint64(uint64(words[i])))
	}
	return Decimal{number, t.Scale}
}
