"""Names and departments from which the demo's people are made: Latin transliteration beside the spelling of the passport."""

from typing import Final

WOMEN: Final = (
    ("Aigerim", "Әйгерім"), ("Aliya", "Әлия"), ("Aizhan", "Айжан"), ("Dana", "Дана"), ("Gulnara", "Гүлнара"),
    ("Zarina", "Зарина"), ("Madina", "Мәдина"), ("Saule", "Сәуле"), ("Asel", "Әсел"), ("Zhanar", "Жанар"),
    ("Kamila", "Камила"), ("Togzhan", "Тоғжан"), ("Botagoz", "Ботагөз"), ("Dinara", "Динара"), ("Anna", "Анна"),
    ("Elena", "Елена"), ("Olga", "Ольга"), ("Irina", "Ирина"), ("Natalya", "Наталья"), ("Svetlana", "Светлана"),
    ("Mariya", "Мария"), ("Tatyana", "Татьяна"), ("Ekaterina", "Екатерина"), ("Yuliya", "Юлия"), ("Darya", "Дарья"),
)  # fmt: skip
MEN: Final = (
    ("Aibek", "Айбек"), ("Nurlan", "Нұрлан"), ("Yerlan", "Ерлан"), ("Daniyar", "Данияр"), ("Askar", "Асқар"),
    ("Bolat", "Болат"), ("Serik", "Серік"), ("Kairat", "Қайрат"), ("Timur", "Тимур"), ("Arman", "Арман"),
    ("Alikhan", "Әлихан"), ("Sanzhar", "Санжар"), ("Dauren", "Дәурен"), ("Nursultan", "Нұрсұлтан"), ("Olzhas", "Олжас"),
    ("Aleksandr", "Александр"), ("Dmitry", "Дмитрий"), ("Sergey", "Сергей"), ("Andrey", "Андрей"), ("Mikhail", "Михаил"),
    ("Ivan", "Иван"), ("Maksim", "Максим"), ("Pavel", "Павел"), ("Viktor", "Виктор"), ("Konstantin", "Константин"),
)  # fmt: skip

# A woman's name ends in -a in both alphabets.
FAMILIES: Final = (
    ("Akhmetov", "Ахметов"), ("Omarov", "Омаров"), ("Ospanov", "Оспанов"), ("Kasymov", "Қасымов"), ("Suleimenov", "Сүлейменов"),
    ("Zhumabayev", "Жұмабаев"), ("Nurgaliyev", "Нұрғалиев"), ("Abdrakhmanov", "Абдрахманов"), ("Iskakov", "Ысқақов"),
    ("Tulegenov", "Төлегенов"), ("Baizhanov", "Байжанов"), ("Sadykov", "Садықов"), ("Mukhamedzhanov", "Мұхамеджанов"),
    ("Seitkaliyev", "Сейітқалиев"), ("Karimov", "Кәрімов"), ("Bekturov", "Бектұров"), ("Yesimov", "Есімов"),
    ("Ibrayev", "Ыбыраев"), ("Rakhimov", "Рахимов"), ("Temirkhanov", "Темірханов"), ("Ivanov", "Иванов"),
    ("Smirnov", "Смирнов"), ("Kuznetsov", "Кузнецов"), ("Popov", "Попов"), ("Vasilyev", "Васильев"), ("Petrov", "Петров"),
    ("Sokolov", "Соколов"), ("Mikhailov", "Михайлов"), ("Novikov", "Новиков"), ("Fyodorov", "Фёдоров"), ("Morozov", "Морозов"),
    ("Volkov", "Волков"), ("Lebedev", "Лебедев"), ("Semyonov", "Семёнов"), ("Pavlov", "Павлов"), ("Golubev", "Голубев"),
    ("Vinogradov", "Виноградов"), ("Bogdanov", "Богданов"), ("Vorobyov", "Воробьёв"), ("Kim", "Ким"), ("Tsoi", "Цой"),
)  # fmt: skip

# Department, its share of the staff, and the positions in it.
DEPARTMENTS: Final = (
    ("Production", 0.24, ("Operator", "Shift Engineer", "Process Technologist", "Dispatcher")),
    ("Customer Service", 0.14, ("Service Agent", "Senior Service Agent", "Service Analyst")),
    ("Logistics", 0.12, ("Warehouse Specialist", "Route Planner", "Customs Specialist")),
    ("Sales", 0.11, ("Account Manager", "Sales Specialist", "Tender Specialist")),
    ("Maintenance", 0.10, ("Fitter", "Electrician", "Maintenance Planner")),
    ("IT", 0.07, ("Developer", "System Administrator", "Business Analyst", "Data Engineer")),
    ("Finance", 0.05, ("Financial Analyst", "Treasurer", "Controller")),
    ("Accounting", 0.05, ("Accountant", "Payroll Accountant", "Tax Accountant")),
    ("Procurement", 0.04, ("Buyer", "Category Manager")),
    ("Security", 0.03, ("Security Officer", "Access Control Specialist")),
    ("HR", 0.03, ("HR Specialist", "Recruiter", "Training Specialist")),
    ("Legal", 0.02, ("Lawyer", "Compliance Specialist")),
)  # fmt: skip
