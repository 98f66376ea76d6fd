"""Schedules that somebody may write to keep a scheduler busy, or by accident."""

from datetime import date, timedelta
from importlib import resources

ZONES = (resources.files("tzdata") / "zones").read_text().split()
WEEKDAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
COUNTRIES = [
    "DE", "US", "GB", "FR", "IT", "ES", "PT", "NL", "BE", "CH", "AT", "SE",
    "NO", "FI", "DK", "PL", "CZ", "HU", "RO", "BG", "GR", "IE", "CA", "MX",
    "BR", "AR", "CL", "CO", "PE", "AU", "NZ", "JP", "KR", "CN", "IN", "SG",
    "MY", "TH", "VN", "ID", "PH", "TR", "IL", "EG", "ZA", "NG", "KE", "UA",
    "EE",
]  # fmt: skip


def days(start: str, count: int) -> list[str]:
    first = date.fromisoformat(start)
    return [(first + timedelta(days=number)).isoformat() for number in range(count)]


def nested(depth: int) -> object:
    return {"any": [nested(depth - 1)]} if depth else "@daily"


ALL = ",".join(map(str, range(60)))
HOSTILE = [
    "*/0 * * * *",
    "0-4294967295 * * * *",
    "," * 100_000,
    "*/1," * 120 + "* * * * *",
    "9" * 400 + " * * * *",
    "٣ * * * *",
    "*" * 500,
    "(" * 500,
    "0 0 30 2 *",
    "0 0 31 2,4,6,9,11 *",
    "0 0 0 29 2 */7 2199",
    "0 0 29 2 */7",
    "0 0 29 2 1#5",
    "* * * * * * 2199",
    "0 0 31W 2 *",
    "@every 99999999999999s",
    {"cron": "* * * * *", "tz": "../../etc/passwd"},
    {"cron": "* * * * *", "tz": "x" * 5000},
    {"cron": "* * * * *", "tz": "Europe/Berlinx"},
    {"cron": "* * * * *", "start_at": "9999-12-30T00:00:00Z"},
    {"every": 1e300},
    {"every": float("nan")},
    {"at": 1e18},
    {"at": "9999-12-31T23:59:59Z"},
    {"rrule": "DTSTART:19700101T000000\nRRULE:FREQ=SECONDLY"},
    {"rrule": "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30"},
    {"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"},
    {"rrule": "FREQ=YEARLY;BYWEEKNO=53;BYMONTH=6"},
    {"rrule": "FREQ=DAILY;INTERVAL=100000;BYMONTHDAY=31;BYDAY=MO"},
    {"rrule": "FREQ=DAILY;COUNT=1000"},
    {"rrule": "FREQ=DAILY;BYYEARDAY=-67;COUNT=596"},
    {"rrule": "FREQ=YEARLY;BYDAY=MO;COUNT=965"},
    {"rrule": "FREQ=YEARLY;INTERVAL=99999;COUNT=9"},
    {"rrule": f"FREQ=YEARLY;BYHOUR=0;BYMINUTE={ALL};BYSECOND={ALL[:60]};BYSETPOS=-1"},
    {"rrule": "FREQ=MINUTELY;INTERVAL=1440;BYHOUR=23"},
    nested(200),
    {"any": ["@daily"] * 10_000},
    {"any": ["* * * * *"], "except": ["* * * * *"]},
    {"any": [f"{n} * * * *" for n in range(25)], "except": [f"{n} * * * *" for n in range(25)]},
    {"any": [{"every": "1s"}], "except": [{"every": "1s"}]},
    {"cron": "0 0 * * sat", "calendar": {"business_days": True}},
    {
        "rrule": "FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO",
        "calendar": {
            "dates": [f"2026-{m:02}-{d:02}" for m in range(1, 13) for d in range(1, 29)],
            "on_closed": "next_open",
        },
    },
    {
        "cron": "* * * * * *",
        "calendar": {
            "dates": [
                f"{y}-0{m}-{d:02}" for y in (2026, 2027) for m in (6, 7) for d in range(1, 31)
            ],
            "on_closed": "previous_open",
        },
    },
    # Many parts that are each rare, or long to count.
    {
        "any": [
            {"rrule": f"FREQ=YEARLY;BYWEEKNO=53;BYDAY={WEEKDAYS[n % 7]};BYHOUR={n // 7}"}
            for n in range(48)
        ]
    },
    {
        "any": [
            {
                "rrule": "FREQ=YEARLY;INTERVAL=7;BYMONTH=2;BYMONTHDAY=29;"
                f"BYDAY={WEEKDAYS[n % 7]};BYHOUR={n // 7}"
            }
            for n in range(48)
        ]
    },
    {"any": [{"rrule": f"FREQ=DAILY;COUNT=1000;BYMINUTE={n}"} for n in range(48)]},
    {"any": [{"any": [f"{n} {m} * * *" for m in range(24)]} for n in range(49)]},
    {
        "any": [
            {
                "any": [
                    {"rrule": f"FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYHOUR={m};BYMINUTE={n}"}
                    for m in range(12)
                ],
                "except": ["* * * * *"],
            }
            for n in range(3)
        ]
    },
    {"any": [("*/1," * 120 + "* * * * *").replace("1", str(n + 1), 1) for n in range(40)]},
    {"any": [{"cron": "30 2 * * *", "tz": zone} for zone in ZONES[::12][:50]]},
    {"any": [{"cron": "30 2 29 2 1#5", "tz": zone} for zone in ZONES[5::12][:50]]},
    {"any": [{"cron": "0 9 * * *", "calendar": {"country": code}} for code in COUNTRIES]},
    {
        "any": [
            {"cron": f"{n} 9 * * *", "calendar": {"dates": days("2020-01-01", 900)}}
            for n in range(40)
        ]
    },
    {
        "any": [{"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO"}],
        "except": [{"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO"}],
    },
    # Long lists, and rules whose days and periods hardly ever meet.
    {
        "rrule": "DTSTART:20261101T000000\nRRULE:FREQ=DAILY\nEXDATE:"
        + ",".join(day.replace("-", "") for day in days("2026-11-01", 430))
    },
    {
        "rrule": "DTSTART:20261101T000000\nRRULE:FREQ=DAILY\n"
        "EXDATE:" + ",".join(day.replace("-", "") + "T000000Z" for day in days("2026-11-01", 230)),
    },
    {
        "rrule": "DTSTART:20261101T090000\nRRULE:FREQ=DAILY\n"
        "EXDATE;TZID=America/New_York:"
        + ",".join(day.replace("-", "") + "T040000" for day in days("2026-11-01", 230)),
        "tz": "Europe/Berlin",
    },
    # Lines and parameters that are slow to take apart.
    {"rrule": "FREQ=DAILY" + "\n " * 1_990},
    {"rrule": "FREQ=DAILY" + " " * 3_900 + "X"},
    {"rrule": "FREQ=DAILY\nEXDATE" + ';A="' * 990},
    {"rrule": "FREQ=YEARLY;BYYEARDAY=" + ",".join(map(str, range(1, 367))) + ";COUNT=999"},
    {"rrule": "FREQ=YEARLY;BYDAY=" + ",".join(f"{n}{d}" for n in range(1, 54) for d in WEEKDAYS)},
    {"rrule": "FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA;BYSETPOS=366"},
    {
        "rrule": "FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;COUNT=1000;BYSETPOS="
        + ",".join(map(str, range(1, 367)))
    },
    {"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYSETPOS=2,366"},
    {
        "rrule": "FREQ=WEEKLY;COUNT=1000;BYSECOND=9,28;BYSETPOS=1,"
        + ",".join(map(str, range(100, 200)))
    },
    {"rrule": "FREQ=SECONDLY;INTERVAL=86399;BYMONTH=2;BYMONTHDAY=29;BYHOUR=3;BYMINUTE=4"},
    {"rrule": "FREQ=DAILY;INTERVAL=7;BYDAY=MO"},
    # Days that are all closed, or far away.
    {"cron": "0 0 25 12 *", "calendar": {"country": "DE"}},
    {"cron": "0 0 25 12 *", "tz": "Europe/Berlin", "calendar": {"country": "DE"}},
    {"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=SA", "calendar": {"business_days": True}},
    {
        "every": "7m",
        "calendar": {"dates": days("2026-10-16", 31), "on_closed": "next_open"},
    },
    {
        "any": ["*/5 * * * *", "*/7 * * * *", {"every": "11m"}],
        "calendar": {"dates": days("2026-10-16", 31), "on_closed": "next_open"},
    },
    {
        "cron": "* * * * *",
        "calendar": {
            "blackouts": [
                [
                    f"{2000 + n // 12}-{n % 12 + 1:02}-01T00:00:00Z",
                    f"{2000 + n // 12}-{n % 12 + 1:02}-28T00:00:00Z",
                ]
                for n in range(1000)
            ]
        },
    },
]
