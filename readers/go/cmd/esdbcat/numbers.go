package main

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"esformat/esdb"
)

// float appends a floating point number with as few digits as identify it among those of so many bits.
func (p *printer) float(out []byte, value float64, bits int) []byte {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		switch {
		case !p.exact:
			return append(out, "null"...)
		case math.IsNaN(value):
			return append(out, `"NaN"`...)
		case value > 0:
			return append(out, `"Infinity"`...)
		}
		return append(out, `"-Infinity"`...)
	}
	lowest, highest := -6, 10 // the exponents of numbers that are written without one
	if p.exact {
		lowest, highest = -4, 16
	}
	text := strconv.FormatFloat(value, 'e', -1, bits)
	mantissa, after, _ := strings.Cut(text, "e")
	exponent, _ := strconv.Atoi(after)
	if value == 0 || exponent >= lowest && exponent < highest {
		text = strconv.FormatFloat(value, 'f', -1, bits)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return append(out, text...)
	}
	if p.exact { // at least two digits, as Go writes them
		return append(out, text...)
	}
	out = append(append(out, mantissa...), 'e')
	if exponent > 0 {
		out = append(out, '+')
	}
	return strconv.AppendInt(out, int64(exponent), 10)
}

func asFloat(value any) (float64, bool) {
	switch value := value.(type) {
	case float32:
		return float64(value), true
	case float64:
		return value, true
	}
	return 0, false
}

// keyOfFloat returns a number as the name of a member.
func keyOfFloat(text []byte, value float64) string {
	switch {
	case math.IsNaN(value):
		return "nan"
	case math.IsInf(value, 1):
		return "inf"
	case math.IsInf(value, -1):
		return "-inf"
	}
	return strings.TrimSuffix(string(text), ".0")
}

// appendPlainDecimal appends a decimal without an exponent, if that is not absurdly long.
func appendPlainDecimal(out []byte, d esdb.Decimal) []byte {
	const most = 1000
	switch {
	case d.Scale < -most || d.Scale > most:
		return append(out, d.String()...)
	case d.Scale <= 0:
		zeros := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-d.Scale)), nil)
		return zeros.Mul(zeros, d.Unscaled).Append(out, 10)
	}
	digits := new(big.Int).Abs(d.Unscaled).String()
	if missing := d.Scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	if d.Unscaled.Sign() < 0 {
		out = append(out, '-')
	}
	point := len(digits) - d.Scale
	out = append(append(out, digits[:point]...), '.')
	return append(out, digits[point:]...)
}

// unitsPerSecond and digits of the fraction, by unit.
var units = map[string]struct {
	perSecond int64
	digits    int
}{"s": {1, 0}, "ms": {1e3, 3}, "us": {1e6, 6}, "ns": {1e9, 9}}

const lastShownSecond = 900_000_000_000 // farther times are written as numbers

// appendTemporal appends a date, a time, a timestamp or a duration.
func appendTemporal(out []byte, t *esdb.Type, value int64) []byte {
	switch t.Class {
	case esdb.Date32:
		return appendDate(out, value, value*86400)
	case esdb.Date64:
		return appendDate(out, value, floor(value, 1000))
	case esdb.Timestamp:
		zone := ""
		if t.Zone != "" {
			zone = "Z"
		}
		return appendMoment(out, value, t.Unit, zone)
	case esdb.Time:
		if unit := units[t.Unit]; value >= 0 && value < 86400*unit.perSecond {
			return appendClock(out, value, t.Unit)
		}
	}
	return strconv.AppendInt(out, value, 10)
}

func floor(value, by int64) int64 {
	if value < 0 && value%by != 0 {
		return value/by - 1
	}
	return value / by
}

func appendDate(out []byte, value, second int64) []byte {
	if second < -lastShownSecond || second >= lastShownSecond {
		return strconv.AppendInt(out, value, 10)
	}
	year, month, day := time.Unix(second, 0).UTC().Date()
	if year < 0 {
		out, year = append(out, '-'), -year
	}
	out = appendPadded(out, int64(year), 4)
	out = appendPadded(append(out, '-'), int64(month), 2)
	return appendPadded(append(out, '-'), int64(day), 2)
}

// appendMoment appends a date and a time.
func appendMoment(out []byte, value int64, unit, zone string) []byte {
	second := floor(value, units[unit].perSecond)
	if second < -lastShownSecond || second >= lastShownSecond {
		return strconv.AppendInt(out, value, 10)
	}
	day := floor(second, 86400) * 86400
	out = append(appendDate(out, value, second), 'T')
	out = appendClock(out, value-day*units[unit].perSecond, unit)
	return append(out, zone...)
}

// appendClock appends a time of day.
func appendClock(out []byte, value int64, unit string) []byte {
	second, fraction := value/units[unit].perSecond, value%units[unit].perSecond
	out = appendPadded(out, second/3600, 2)
	out = appendPadded(append(out, ':'), second/60%60, 2)
	out = appendPadded(append(out, ':'), second%60, 2)
	if digits := units[unit].digits; digits > 0 {
		out = appendPadded(append(out, '.'), fraction, digits)
	}
	return out
}

func appendPadded(out []byte, number int64, digits int) []byte {
	text := strconv.FormatInt(number, 10)
	for range digits - len(text) {
		out = append(out, '0')
	}
	return append(out, text...)
}

// appendInterval appends an interval in the notation of ISO 8601.
func appendInterval(out []byte, i esdb.Interval) []byte {
	out = strconv.AppendInt(append(out, 'P'), int64(i.Months), 10)
	out = strconv.AppendInt(append(out, 'M'), int64(i.Days), 10)
	seconds, fraction := i.Nanoseconds/1e9, i.Nanoseconds%1e9
	out = append(out, "DT"...)
	if i.Nanoseconds < 0 {
		out, seconds, fraction = append(out, '-'), -seconds, -fraction
	}
	out = strconv.AppendInt(out, seconds, 10)
	if fraction > 0 {
		digits := appendPadded(nil, fraction, 9)
		out = append(append(out, '.'), strings.TrimRight(string(digits), "0")...)
	}
	return append(out, 'S')
}
