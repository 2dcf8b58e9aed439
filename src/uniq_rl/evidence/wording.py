"""How numbers are written in texts, tables and figures."""


def count(number: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def thousands(value: float) -> str:
    """1500 as 1.5k, 2000000 as 2M."""
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if size <= value < 1e9:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def percent(share: float) -> str:
    """A share with as many digits as it needs to differ from none and all: 0.04 %, 0.4 %, 4 %, 99.6 %."""
    value = 100 * share
    distance = min(value, 100 - value)
    if distance < 5e-3:
        return f"{round(value)} %"
    return f"{value:.{2 if distance < 0.095 else 1 if distance < 9.95 else 0}f} %".replace(".0 %", " %")


def signed(number: float, spec: str = "+.1f") -> str:
    """With a true minus; what rounds to nothing is not negative."""
    text = format(number, spec)
    return (format(0.0, spec) if float(text) == 0 else text).replace("-", "−")
