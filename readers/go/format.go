package esdb

import "strconv"

// dateForm is how dates of a form look (section 9).
type dateForm struct {
	perDay    int64 // units of a day
	fraction  int   // digits of the second behind the point
	seconds   bool
	separator byte // between date and time; 0 without a time
	log       bool // like 09/Jul/2026:08:05:03
}

var dateForms = [...]dateForm{
	{perDay: 1},
	{perDay: 1440, separator: 'T'},
	{perDay: 86400, seconds: true, separator: 'T'},
	{perDay: 86400e3, seconds: true, fraction: 3, separator: 'T'},
	{perDay: 86400e6, seconds: true, fraction: 6, separator: 'T'},
	{perDay: 1440, separator: ' '},
	{perDay: 86400, seconds: true, separator: ' '},
	{perDay: 86400e3, seconds: true, fraction: 3, separator: ' '},
	{perDay: 86400e6, seconds: true, fraction: 6, separator: ' '},
	{perDay: 86400, seconds: true, separator: ':', log: true},
}

const (
	firstDay = -719162 // 0001-01-01, in days since 1970-01-01
	lastDay  = 2932896 // 9999-12-31
)

var powersOfTen = func() (powers [19]uint64) {
	powers[0] = 1
	for i := 1; i < len(powers); i++ {
		powers[i] = 10 * powers[i-1]
	}
	return powers
}()

// format appends the text of a number, and says whether the variable can show it.
func (v variable) format(out []byte, n int64) ([]byte, bool) {
	switch v.kind {
	case varInteger:
		return strconv.AppendInt(out, n, 10), true
	case varPadded:
		if n < 0 || uint64(n) >= powersOfTen[v.parameter] {
			return out, false
		}
		return appendDigits(out, uint64(n), v.parameter), true
	case varDecimal:
		size := uint64(n)
		if n < 0 {
			out, size = append(out, '-'), -size
		}
		one := powersOfTen[v.parameter]
		out = append(strconv.AppendUint(out, size/one, 10), '.')
		return appendDigits(out, size%one, v.parameter), true
	case varHex:
		if v.parameter < 16 && uint64(n)>>(4*v.parameter) != 0 {
			return out, false
		}
		for shift := 4 * (v.parameter - 1); shift >= 0; shift -= 4 {
			out = append(out, "0123456789abcdef"[uint64(n)>>shift&15])
		}
		return out, true
	}
	return dateForms[v.parameter].format(out, n)
}

// appendDigits appends a number with leading zeros, so many digits.
func appendDigits(out []byte, n uint64, digits int) []byte {
	for digits--; digits >= 0; digits-- {
		out = append(out, byte('0'+n/powersOfTen[digits]%10))
	}
	return out
}

func (f dateForm) format(out []byte, n int64) ([]byte, bool) {
	day, rest := n/f.perDay, n%f.perDay
	if rest < 0 {
		day, rest = day-1, rest+f.perDay
	}
	if day < firstDay || day > lastDay {
		return out, false
	}
	out = f.appendDate(out, day)
	if f.separator == 0 {
		return out, true
	}
	units := f.perDay / 1440 // of a minute
	minute, rest := rest/units, rest%units
	out = append(out, f.separator)
	out = appendDigits(out, uint64(minute/60), 2)
	out = appendDigits(append(out, ':'), uint64(minute%60), 2)
	if !f.seconds {
		return out, true
	}
	units /= 60 // of a second
	out = appendDigits(append(out, ':'), uint64(rest/units), 2)
	if f.fraction > 0 {
		out = appendDigits(append(out, '.'), uint64(rest%units), f.fraction)
	}
	return out, true
}

func (f dateForm) appendDate(out []byte, day int64) []byte {
	year, month, dayOfMonth := civil(day)
	if f.log {
		out = appendDigits(out, uint64(dayOfMonth), 2)
		out = append(out, '/')
		out = append(out, "JanFebMarAprMayJunJulAugSepOctNovDec"[3*month-3:3*month]...)
		return appendDigits(append(out, '/'), uint64(year), 4)
	}
	out = appendDigits(out, uint64(year), 4)
	out = appendDigits(append(out, '-'), uint64(month), 2)
	return appendDigits(append(out, '-'), uint64(dayOfMonth), 2)
}

// civil returns the date of a day since 1970-01-01 in the Gregorian calendar. It counts in years that begin in March,
// so that a leap day is the last of its year.
func civil(day int64) (year, month, dayOfMonth int64) {
	day += 719468 // since 0000-03-01
	era := day / 146097
	day -= 146097 * era // in 400 years
	ofEra := (day - day/1460 + day/36524 - day/146096) / 365
	day -= 365*ofEra + ofEra/4 - ofEra/100
	m := (5*day + 2) / 153
	dayOfMonth = day - (153*m+2)/5 + 1
	year, month = 400*era+ofEra, m+3
	if month > 12 {
		year, month = year+1, month-12
	}
	return year, month, dayOfMonth
}
