//! The compression function, for one word or a row of words.

/// What the compression function does with its words: `u32`, or several of them side by side.
pub(super) trait Word: Copy {
    fn add(self, other: Self) -> Self;
    fn add_constant(self, constant: u32) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn not(self) -> Self;
    fn rotate(self, bits: u32) -> Self;
}

impl Word for u32 {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn add_constant(self, constant: u32) -> Self {
        self.wrapping_add(constant)
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self & other
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        self | other
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self ^ other
    }

    #[inline(always)]
    fn not(self) -> Self {
        !self
    }

    #[inline(always)]
    fn rotate(self, bits: u32) -> Self {
        self.rotate_left(bits)
    }
}

/// RFC 1321's table: the digits of the sine.
#[rustfmt::skip]
pub(super) static CONSTANTS: [u32; 64] = [
    0xD76A_A478, 0xE8C7_B756, 0x2420_70DB, 0xC1BD_CEEE, 0xF57C_0FAF, 0x4787_C62A, 0xA830_4613, 0xFD46_9501,
    0x6980_98D8, 0x8B44_F7AF, 0xFFFF_5BB1, 0x895C_D7BE, 0x6B90_1122, 0xFD98_7193, 0xA679_438E, 0x49B4_0821,
    0xF61E_2562, 0xC040_B340, 0x265E_5A51, 0xE9B6_C7AA, 0xD62F_105D, 0x0244_1453, 0xD8A1_E681, 0xE7D3_FBC8,
    0x21E1_CDE6, 0xC337_07D6, 0xF4D5_0D87, 0x455A_14ED, 0xA9E3_E905, 0xFCEF_A3F8, 0x676F_02D9, 0x8D2A_4C8A,
    0xFFFA_3942, 0x8771_F681, 0x6D9D_6122, 0xFDE5_380C, 0xA4BE_EA44, 0x4BDE_CFA9, 0xF6BB_4B60, 0xBEBF_BC70,
    0x289B_7EC6, 0xEAA1_27FA, 0xD4EF_3085, 0x0488_1D05, 0xD9D4_D039, 0xE6DB_99E5, 0x1FA2_7CF8, 0xC4AC_5665,
    0xF429_2244, 0x432A_FF97, 0xAB94_23A7, 0xFC93_A039, 0x655B_59C3, 0x8F0C_CC92, 0xFFEF_F47D, 0x8584_5DD1,
    0x6FA8_7E4F, 0xFE2C_E6E0, 0xA301_4314, 0x4E08_11A1, 0xF753_7E82, 0xBD3A_F235, 0x2AD7_D2BB, 0xEB86_D391,
];

/// One block's words, mixed into the state.
#[inline(always)]
pub(super) fn compress<W: Word>(state: [W; 4], block: &[W; 16], constants: &[u32; 64]) -> [W; 4] {
    let [mut a, mut b, mut c, mut d] = state;

    // One step: `$early` is what the step adds that is known before `$b`, so that only `$late` waits for it.
    macro_rules! step {
        ($f:ident, $a:ident, $b:ident, $c:ident, $d:ident, $i:expr, $word:expr, $bits:expr) => {
            let early = $a.add(block[$word].add_constant(constants[$i]));
            $a = $f(early, $b, $c, $d).rotate($bits).add($b);
        };
    }
    macro_rules! steps {
        ($f:ident, $i:expr, [$w0:expr, $w1:expr, $w2:expr, $w3:expr], $bits:expr) => {
            step!($f, a, b, c, d, $i, $w0 % 16, $bits[0]);
            step!($f, d, a, b, c, $i + 1, $w1 % 16, $bits[1]);
            step!($f, c, d, a, b, $i + 2, $w2 % 16, $bits[2]);
            step!($f, b, c, d, a, $i + 3, $w3 % 16, $bits[3]);
        };
    }
    // Round r uses word m * i + n at its step i.
    macro_rules! round {
        ($f:ident, $first:expr, $m:expr, $n:expr, $bits:expr) => {
            steps!($f, $first, [$n, $m + $n, 2 * $m + $n, 3 * $m + $n], $bits);
            steps!($f, $first + 4, [4 * $m + $n, 5 * $m + $n, 6 * $m + $n, 7 * $m + $n], $bits);
            steps!($f, $first + 8, [8 * $m + $n, 9 * $m + $n, 10 * $m + $n, 11 * $m + $n], $bits);
            steps!($f, $first + 12, [12 * $m + $n, 13 * $m + $n, 14 * $m + $n, 15 * $m + $n], $bits);
        };
    }
    round!(choose, 0, 1, 0, [7, 12, 17, 22]);
    round!(choose_by_last, 16, 5, 1, [5, 9, 14, 20]);
    round!(parity, 32, 3, 5, [4, 11, 16, 23]);
    round!(fold, 48, 7, 0, [6, 10, 15, 21]);

    [state[0].add(a), state[1].add(b), state[2].add(c), state[3].add(d)]
}

#[inline(always)]
fn choose<W: Word>(early: W, b: W, c: W, d: W) -> W {
    early.add(d.xor(b.and(c.xor(d))))
}

/// The two halves have no bit in common, so they may be added one after the other: `b` is waited for only once.
#[inline(always)]
fn choose_by_last<W: Word>(early: W, b: W, c: W, d: W) -> W {
    early.add(d.not().and(c)).add(d.and(b))
}

#[inline(always)]
fn parity<W: Word>(early: W, b: W, c: W, d: W) -> W {
    early.add(b.xor(c.xor(d)))
}

#[inline(always)]
fn fold<W: Word>(early: W, b: W, c: W, d: W) -> W {
    early.add(c.xor(b.or(d.not())))
}
