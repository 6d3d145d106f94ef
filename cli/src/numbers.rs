//! Formatting of numbers in reports.

/// Formats a number with digits in groups of three: `2,621,440`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count in thousands, millions or billions: `72.3 B`.
pub(super) fn in_billions(number: u64) -> String {
    let (unit, name) = match number {
        0..1_000 => return number.to_string(),
        1_000..1_000_000 => (1e3, "K"),
        1_000_000..1_000_000_000 => (1e6, "M"),
        _ => (1e9, "B"),
    };
    format!("{:.1} {name}", number as f64 / unit)
}

/// Formats bytes in decimal units, as vendors of memory and links use them: `18.1 GB`.
pub(super) fn decimal_bytes(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..1_000_000 => (1e3, "kB"),
        1_000_000..1_000_000_000 => (1e6, "MB"),
        _ => (1e9, "GB"),
    };
    format!("{:.1} {name}", bytes as f64 / unit)
}

/// Formats a count with its noun: `1 token`, `2 tokens`, `3 batches`.
pub(super) fn counted(count: usize, thing: &str) -> String {
    let ending = match (count, thing.ends_with("ch")) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {thing}{ending}", grouped(count as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_three() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (327_680, "327,680"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn units_are_decimal() {
        assert_eq!(in_billions(72_287_920_128), "72.3 B");
        assert_eq!(in_billions(12), "12");
        assert_eq!(decimal_bytes(18_074_000_000), "18.1 GB");
        assert_eq!(decimal_bytes(16_384), "16.4 kB");
        assert_eq!(decimal_bytes(8), "8 B");
        assert_eq!(counted(1, "layer"), "1 layer");
        assert_eq!(counted(2048, "token"), "2,048 tokens");
        assert_eq!(counted(2, "micro-batch"), "2 micro-batches");
    }
}
